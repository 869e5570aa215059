"""What only `trace` shows: a case's devices, queues, longest operations and steps; several ranks
side by side.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console
from rich.table import Table

from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.terminal.console import ASIDE
from parallel_core.terminal.layout import (
    busiest,
    count_rest,
    show_sentence,
    show_sentences,
    show_table,
    table_of,
)
from parallel_core.trace_analysis.figures import CaseFigures
from parallel_core.trace_analysis.ranks import Ranks
from parallel_core.trace_analysis.steps.figures import StepsFigures

MAX_ROWS = 6
"""So many operations or steps are listed; the JSON has all."""
WAITS = (
    "waiting for the host to launch, from kernel to kernel, for other queues; operations "
    "launched and not begun"
)
"""What stands in the columns of the table of waits."""
IN_WORDS = {
    "seconds": "in all",
    "device_seconds": "on the devices",
    "busy_seconds": "at work",
    "collective_seconds": "in collectives",
}


def show_details(case: CaseFigures, console: Console) -> None:
    """Print tables of a case's devices, queues, longest operations and steps, and which steps are
    unlike the rest.
    """
    if case.devices:
        show_table(_devices_table(case), console)
    if case.queue_lengths:
        show_table(_waits_table(case), console)
        show_sentence(WAITS, console, ASIDE)
    if case.operations:
        show_table(_operations_table(case), console)
    if case.steps is not None:
        if len(case.steps.steps) <= MAX_ROWS:
            show_table(_steps_table(case.steps), console)
        show_sentences(_steps_lines(case.steps), console, bullet="· ")


def _devices_table(case: CaseFigures) -> Table:
    headings = ("idle", "computes", "only other devices", "collectives", "hidden")
    table = table_of("from a device's first operation to its last", "device", *headings)
    for one in busiest(case.devices, lambda device: device.seconds - device.idle_seconds):
        hidden = one.hidden_collective_share
        parts = (one.idle_seconds, one.compute_seconds, one.non_compute_seconds)
        table.add_row(
            one.device,
            *(percent(part / one.seconds) if one.seconds else "–" for part in parts),
            seconds(one.collective_seconds) if one.collective_seconds else "–",
            "–" if hidden is None else percent(hidden),
        )
    count_rest(table, len(case.devices))
    return table


def _waits_table(case: CaseFigures) -> Table:
    lengths = {(one.device, one.queue): one for one in case.queue_lengths}
    busy = {(queue.device, queue.queue): queue.busy_seconds for queue in case.queues}
    table = table_of(
        "idle between operations", "queue", "host", "kernel", "other queues", "length", "longest"
    )
    for one in busiest(case.idleness, lambda queue: busy[queue.device, queue.queue]):
        length = lengths.get((one.device, one.queue))
        waited = (one.host_wait_seconds, one.kernel_wait_seconds, one.other_wait_seconds)
        table.add_row(
            f"{one.device} {one.queue}",
            *(seconds(each) if each else "–" for each in waited),
            "–" if length is None else figure(round(length.mean_length, 2)),
            "–" if length is None else f"{length.longest:,}",
        )
    count_rest(table, len(case.idleness))
    return table


def _operations_table(case: CaseFigures) -> Table:
    table = table_of(
        "operations that take the most time", "operation", "number", "in all", "mean", "share"
    )
    for one in case.operations[:MAX_ROWS]:
        times = seconds(one.seconds), seconds(one.mean_seconds)
        table.add_row(one.name, f"{one.operations:,}", *times, percent(one.share))
    return table


def _steps_table(found: StepsFigures) -> Table:
    table = table_of("steps", "step", "in all", "operations", "at work", "collectives", "hidden")
    for one in found.steps:
        exchanged = one.collective_seconds
        table.add_row(
            one.name,
            seconds(one.seconds),
            f"{one.operations:,}",
            seconds(one.busy_seconds),
            seconds(exchanged) if exchanged else "–",
            percent(one.hidden_collective_seconds / exchanged) if exchanged else "–",
        )
    return table


def _steps_lines(found: StepsFigures) -> Iterator[str]:
    if account := found.account:
        yield (
            f"a step takes {account.seconds_in_words} in the median of {account.steps}: "
            f"{account.shares_in_words}"
        )
    if found.pause:
        yield found.pause.in_words
    unlike = defaultdict[str, list[str]](list)
    for one in found.outliers:
        times = "" if one.ratio is None else f" ({figure(round(one.ratio, 2))} × the median)"
        unlike[one.step].append(f"{seconds(one.seconds)} {IN_WORDS[one.quantity]}{times}")
    for step in list(unlike)[:MAX_ROWS]:
        yield f"{step} is unlike the other steps: {listed(unlike[step])}"
    if len(unlike) > MAX_ROWS:
        yield f"so are {len(unlike) - MAX_ROWS:,} more"


MAX_RANKS = 8
"""More ranks than these are not listed one by one."""
COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "seconds": ("time", seconds),
    "compute_seconds": ("computing", seconds),
    "communication_seconds": ("communication", seconds),
    "hidden_share": ("hidden", percent),
    "idle_share": ("idle", percent),
    "waited_seconds": ("waited", seconds),
}
"""By figure, what it is called and how it is written."""


def show_ranks(ranks: Ranks, console: Console) -> None:
    """Print the table of several ranks, the straggler, and the notes. Eighty columns are enough."""
    show_table(
        _rows_of_ranks(ranks) if len(ranks.by_rank) <= MAX_RANKS else _rows_of_figures(ranks),
        console,
    )
    show_sentences((_straggler(ranks), *ranks.notes), console, bullet="· ")


def _title(ranks: Ranks) -> str:
    of = f" of {ranks.world_size}" if ranks.world_size not in (None, len(ranks.by_rank)) else ""
    return f"{len(ranks.by_rank)} ranks{of}"


def _rows_of_ranks(ranks: Ranks) -> Table:
    headings = [heading for heading, _ in COLUMNS.values()]
    table = table_of(_title(ranks), "rank", *headings, "last", style="bold")
    for one in ranks.by_rank:
        last = f"{one.arrived_last:,}" if one.matched_collectives else "–"
        table.add_row(str(one.rank), *(_cell(getattr(one, name), name) for name in COLUMNS), last)
    table.add_section()
    for name in ("median", "spread"):
        cells = (_cell(getattr(ranks.spread.get(column), name, None), column) for column in COLUMNS)
        table.add_row(name, *cells, "")
    return table


def _rows_of_figures(ranks: Ranks) -> Table:
    headings = ("least", "rank", "median", "most", "rank", "spread")
    table = table_of(_title(ranks), "", *headings, style="bold")
    for name, (heading, _) in COLUMNS.items():
        if found := ranks.spread.get(name):
            numbers = (found.least, found.median, found.most, found.spread)
            least, middle, most, apart = (_cell(value, name) for value in numbers)
            table.add_row(
                heading, least, str(found.least_rank), middle, most, str(found.most_rank), apart
            )
    return table


def _cell(value: float | None, name: str) -> str:
    return "–" if value is None else COLUMNS[name][1](value)


def _straggler(ranks: Ranks) -> str:
    if not ranks.matched_collectives:
        return "no straggler can be named: no collective of all ranks was found"
    if ranks.straggler is None:
        return (
            f"no straggler: in {ranks.matched_collectives:,} collectives all ranks waited about "
            "as long"
        )
    (late,) = (one for one in ranks.by_rank if one.rank == ranks.straggler)
    most = max(
        (one for one in ranks.by_rank if one is not late), key=lambda one: one.waited_seconds or 0.0
    )
    waited = most.waited_seconds or 0.0
    others = (
        "the other waited"
        if len(ranks.by_rank) == 2
        else f"of the other ranks rank {most.rank} waited most,"
    )
    share = f", {percent(waited / most.seconds)} of the time" if most.seconds else ""
    return (
        f"straggler: rank {late.rank} came last in {late.arrived_last:,} of "
        f"{late.matched_collectives:,} collectives, "
        f"and waited {seconds(late.waited_seconds or 0.0)} in them; {others} "
        f"{seconds(waited)}{share}"
    )
