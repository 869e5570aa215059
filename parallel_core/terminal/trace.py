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

NOTHING = "–"
"""What stands in a cell without a figure."""
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
    for device in busiest(case.devices, lambda device: device.seconds - device.idle_seconds):
        parts = (device.idle_seconds, device.compute_seconds, device.non_compute_seconds)
        table.add_row(
            device.device,
            *(percent(part / device.seconds) if device.seconds else NOTHING for part in parts),
            _time(device.collective_seconds),
            _share(device.hidden_collective_share),
        )
    count_rest(table, len(case.devices))
    return table


def _waits_table(case: CaseFigures) -> Table:
    lengths = {(length.device, length.queue): length for length in case.queue_lengths}
    busy = {(queue.device, queue.queue): queue.busy_seconds for queue in case.queues}
    table = table_of(
        "idle between operations", "queue", "host", "kernel", "other queues", "length", "longest"
    )
    for idle in busiest(case.idleness, lambda queue: busy[queue.device, queue.queue]):
        mean_length = longest = NOTHING
        length = lengths.get((idle.device, idle.queue))
        if length is not None:
            mean_length = figure(round(length.mean_length, 2))
            longest = f"{length.longest:,}"
        table.add_row(
            f"{idle.device} {idle.queue}",
            _time(idle.host_wait_seconds),
            _time(idle.kernel_wait_seconds),
            _time(idle.other_wait_seconds),
            mean_length,
            longest,
        )
    count_rest(table, len(case.idleness))
    return table


def _operations_table(case: CaseFigures) -> Table:
    table = table_of(
        "operations that take the most time", "operation", "number", "in all", "mean", "share"
    )
    for operation in case.operations[:MAX_ROWS]:
        table.add_row(
            operation.name,
            f"{operation.operations:,}",
            seconds(operation.seconds),
            seconds(operation.mean_seconds),
            percent(operation.share),
        )
    return table


def _steps_table(steps: StepsFigures) -> Table:
    table = table_of("steps", "step", "in all", "operations", "at work", "collectives", "hidden")
    for step in steps.steps:
        exchanged = step.collective_seconds
        table.add_row(
            step.name,
            seconds(step.seconds),
            f"{step.operations:,}",
            seconds(step.busy_seconds),
            _time(exchanged),
            percent(step.hidden_collective_seconds / exchanged) if exchanged else NOTHING,
        )
    return table


def _steps_lines(steps: StepsFigures) -> Iterator[str]:
    account = steps.account
    if account is not None:
        time = f"{account.seconds_in_words} in the median of {account.steps}"
        yield f"a step takes {time}: {account.shares_in_words}"
    if steps.pause is not None:
        yield steps.pause.in_words
    unlike: dict[str, list[str]] = defaultdict(list)
    for outlier in steps.outliers:
        quantity = f"{seconds(outlier.seconds)} {IN_WORDS[outlier.quantity]}"
        if outlier.ratio is not None:
            quantity += f" ({figure(round(outlier.ratio, 2))} × the median)"
        unlike[outlier.step].append(quantity)
    for step in list(unlike)[:MAX_ROWS]:
        yield f"{step} is unlike the other steps: {listed(unlike[step])}"
    if len(unlike) > MAX_ROWS:
        yield f"so are {len(unlike) - MAX_ROWS:,} more"


def _time(value: float) -> str:
    return seconds(value) if value else NOTHING


def _share(value: float | None) -> str:
    return NOTHING if value is None else percent(value)


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
    are_few = len(ranks.by_rank) <= MAX_RANKS
    show_table(_rows_of_ranks(ranks) if are_few else _rows_of_figures(ranks), console)
    show_sentences((_straggler(ranks), *ranks.notes), console, bullet="· ")


def _title(ranks: Ranks) -> str:
    count = len(ranks.by_rank)
    if ranks.world_size in (None, count):
        return f"{count} ranks"
    return f"{count} ranks of {ranks.world_size}"


def _rows_of_ranks(ranks: Ranks) -> Table:
    headings = [heading for heading, _ in COLUMNS.values()]
    table = table_of(_title(ranks), "rank", *headings, "last", style="bold")
    for rank in ranks.by_rank:
        cells = [_cell(getattr(rank, name), name) for name in COLUMNS]
        last = f"{rank.arrived_last:,}" if rank.matched_collectives else NOTHING
        table.add_row(str(rank.rank), *cells, last)
    table.add_section()
    for kind in ("median", "spread"):
        cells = [_cell(getattr(ranks.spread.get(name), kind, None), name) for name in COLUMNS]
        table.add_row(kind, *cells, "")
    return table


def _rows_of_figures(ranks: Ranks) -> Table:
    headings = ("least", "rank", "median", "most", "rank", "spread")
    table = table_of(_title(ranks), "", *headings, style="bold")
    for name, (heading, write) in COLUMNS.items():
        spread = ranks.spread.get(name)
        if spread is not None:
            table.add_row(
                heading,
                write(spread.least),
                str(spread.least_rank),
                write(spread.median),
                write(spread.most),
                str(spread.most_rank),
                write(spread.spread),
            )
    return table


def _cell(value: float | None, name: str) -> str:
    _, write = COLUMNS[name]
    return NOTHING if value is None else write(value)


def _straggler(ranks: Ranks) -> str:
    if not ranks.matched_collectives:
        return "no straggler can be named: no collective of all ranks was found"
    if ranks.straggler is None:
        collectives = f"{ranks.matched_collectives:,} collectives"
        return f"no straggler: in {collectives} all ranks waited about as long"
    (late,) = (rank for rank in ranks.by_rank if rank.rank == ranks.straggler)
    others = [rank for rank in ranks.by_rank if rank is not late]
    most = max(others, key=lambda rank: rank.waited_seconds or 0.0)
    waited = most.waited_seconds or 0.0
    who = "the other waited"
    if len(others) > 1:
        who = f"of the other ranks rank {most.rank} waited most,"
    share = f", {percent(waited / most.seconds)} of the time" if most.seconds else ""
    return (
        f"straggler: rank {late.rank} came last in {late.arrived_last:,} of "
        f"{late.matched_collectives:,} collectives, and waited "
        f"{seconds(late.waited_seconds or 0.0)} in them; {who} {seconds(waited)}{share}"
    )
