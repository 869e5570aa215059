"""Tables that only the command `trace` prints: a case's devices, queues, longest operations and
steps, and several ranks side by side.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

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
from parallel_core.traces.figures import CaseFigures
from parallel_core.traces.ranks import Ranks
from parallel_core.traces.steps.figures import StepsFigures

NOTHING = "–"
"""The text of a cell without a figure."""
MAX_ROWS = 6
"""The most operations or steps that are listed; the JSON has all of them."""
FEW = 0.5
"""What happens in a smaller share of the steps is not seen in the median step."""
WAITS = (
    "waiting for the host to launch, from kernel to kernel, for other queues; operations "
    "launched and not begun"
)
"""The sentence that explains the columns of the table of waits."""
IN_WORDS = {
    "seconds": "in all",
    "device_seconds": "on the devices",
    "busy_seconds": "at work",
    "collective_seconds": "in collectives",
}


def show_details(case: CaseFigures, console: Console) -> None:
    """Print tables of a case's devices, queues and longest operations."""
    if case.devices:
        show_table(_devices_table(case), console)
    if case.queue_lengths:
        show_table(_waits_table(case), console)
        show_sentence(WAITS, console, ASIDE)
    if case.operations:
        show_table(_operations_table(case), console)


def show_steps(case: CaseFigures, console: Console) -> None:
    """Print a table of a case's steps if they are few, and sentences on them."""
    if case.steps is not None:
        if len(case.steps.steps) <= MAX_ROWS:
            show_table(_steps_table(case.steps), console)
        show_sentences(_steps_lines(case.steps), console, bullet="· ")


def _devices_table(case: CaseFigures) -> Table:
    """Return the table of a case's devices."""
    headings = ("idle", "computes", "only other devices", "collectives", "hidden")
    table = table_of("from a device's first operation to its last", "device", *headings)
    for device in busiest(case.devices, lambda device: device.seconds - device.idle_seconds):
        shares = [NOTHING, NOTHING, NOTHING]
        if device.seconds:
            parts = (device.idle_seconds, device.compute_seconds, device.non_compute_seconds)
            shares = [percent(part / device.seconds) for part in parts]
        table.add_row(
            device.device,
            *shares,
            _time(device.collective_seconds),
            _share(device.hidden_collective_share),
        )
    count_rest(table, len(case.devices))
    return table


def _waits_table(case: CaseFigures) -> Table:
    """Return the table of a case's queues, with their idle time by what they waited for."""
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
    """Return the table of a case's longest operations."""
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
    """Return the table of a training's steps."""
    table = table_of("steps", "step", "in all", "operations", "at work", "collectives", "hidden")
    for step in steps.steps:
        hidden_share = None
        if step.collective_seconds:
            hidden_share = step.hidden_collective_seconds / step.collective_seconds
        table.add_row(
            step.name,
            seconds(step.seconds),
            f"{step.operations:,}",
            seconds(step.busy_seconds),
            _time(step.collective_seconds),
            _share(hidden_share),
        )
    return table


def _steps_lines(steps: StepsFigures) -> Iterator[str]:
    """Yield sentences on the time of a step, on pauses, and on steps that are unlike the others."""
    account = steps.account
    if account is not None:
        time = f"{account.seconds_in_words} in the median of {account.steps}"
        yield f"a step takes {time}: {account.shares_in_words}"
        exchanging = [step for step in steps.steps if step.parts.exchange_seconds]
        if 0 < len(exchanging) < FEW * len(steps.steps):
            time = seconds(fmean(step.parts.exchange_seconds for step in exchanging))
            yield f"{len(exchanging)} of {len(steps.steps)} steps exchange, for {time} each"
    if steps.pause is not None:
        yield steps.pause.in_words
    quantities_by_step: dict[str, list[str]] = defaultdict(list)
    for outlier in steps.outliers:
        quantity = f"{seconds(outlier.seconds)} {IN_WORDS[outlier.quantity]}"
        if outlier.ratio is not None:
            quantity += f" ({figure(round(outlier.ratio, 2))} × the median)"
        quantities_by_step[outlier.step].append(quantity)
    for step in list(quantities_by_step)[:MAX_ROWS]:
        yield f"{step} is unlike the other steps: {listed(quantities_by_step[step])}"
    more = len(quantities_by_step) - MAX_ROWS
    if more > 0:
        yield f"so are {more:,} more"


def _time(value: float) -> str:
    """Write a time; a dash for a time of 0."""
    return seconds(value) if value else NOTHING


def _share(value: float | None) -> str:
    """Write a share in percent; a dash if it is not known."""
    return NOTHING if value is None else percent(value)


MAX_RANKS = 8
"""The most ranks that are listed one by one."""
COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "seconds": ("time", seconds),
    "compute_seconds": ("computing", seconds),
    "communication_seconds": ("communication", seconds),
    "hidden_share": ("hidden", percent),
    "idle_share": ("idle", percent),
    "waited_seconds": ("waited", seconds),
}
"""The heading of each figure, and the function that writes it."""


def show_ranks(ranks: Ranks, console: Console) -> None:
    """Print the table of several ranks, the straggler, and the notes, within 80 columns."""
    are_few = len(ranks.by_rank) <= MAX_RANKS
    table = _rows_of_ranks(ranks) if are_few else _rows_of_figures(ranks)
    show_table(table, console)
    show_sentences((_straggler(ranks), *ranks.notes), console, bullet="· ")


def _title(ranks: Ranks) -> str:
    """Write the number of ranks: `4 ranks`, or `4 ranks of 8` if traces are missing."""
    count = len(ranks.by_rank)
    if ranks.world_size in (None, count):
        return f"{count} ranks"
    return f"{count} ranks of {ranks.world_size}"


def _rows_of_ranks(ranks: Ranks) -> Table:
    """Return the table with a row for each rank, and rows for the median and the spread."""
    headings = [heading for heading, _ in COLUMNS.values()]
    table = table_of(_title(ranks), "rank", *headings, "last", style="bold")
    for rank in ranks.by_rank:
        cells = [_cell(getattr(rank, name), name) for name in COLUMNS]
        last = f"{rank.arrived_last:,}" if rank.matched_collectives else NOTHING
        table.add_row(str(rank.rank), *cells, last)
    table.add_section()
    for kind in ("median", "spread"):
        cells = []
        for name in COLUMNS:
            spread = ranks.spread.get(name)
            cells.append(_cell(getattr(spread, kind, None), name))
        table.add_row(kind, *cells, "")
    return table


def _rows_of_figures(ranks: Ranks) -> Table:
    """Return the table with a row for each figure, over all ranks."""
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
    """Write a figure of a rank; a dash if it is not known."""
    _, write = COLUMNS[name]
    return NOTHING if value is None else write(value)


def _straggler(ranks: Ranks) -> str:
    """Say which rank the others waited for, or that there is no such rank."""
    if not ranks.matched_collectives:
        return "no straggler can be named: no collective of all ranks was found"
    if ranks.straggler is None:
        collectives = f"{ranks.matched_collectives:,} collectives"
        return f"no straggler: in {collectives} all ranks waited about as long"
    (straggler,) = (rank for rank in ranks.by_rank if rank.rank == ranks.straggler)
    others = [rank for rank in ranks.by_rank if rank is not straggler]
    waited_most = max(others, key=lambda rank: rank.waited_seconds or 0.0)
    own_wait = seconds(straggler.waited_seconds or 0.0)
    longest_wait = waited_most.waited_seconds or 0.0
    who = "the other waited"
    if len(others) > 1:
        who = f"of the other ranks rank {waited_most.rank} waited most,"
    sentence = (
        f"straggler: rank {straggler.rank} came last in {straggler.arrived_last:,} of "
        f"{straggler.matched_collectives:,} collectives, and waited {own_wait} in them; "
        f"{who} {seconds(longest_wait)}"
    )
    if waited_most.seconds:
        share = percent(longest_wait / waited_most.seconds)
        sentence += f", {share} of the time"
    return sentence
