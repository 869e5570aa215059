"""Print what a timeline says of its devices' queues: their idleness and length, the longest operations, the steps."""

from collections import defaultdict
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.terminal.console import ASIDE
from parallel_core.terminal.layout import show_sentence, show_table
from parallel_core.trace_analysis.device_figures.devices import DeviceFigures
from parallel_core.trace_analysis.device_figures.steps import StepsFigures
from parallel_core.trace_analysis.figures import CaseFigures

__all__ = ["show_details"]

MAX_ROWS = 6
"""So many operations or steps are listed; the JSON has all."""
IN_WORDS = {
    "seconds": "in all",
    "device_seconds": "on the devices",
    "busy_seconds": "at work",
    "collective_seconds": "in collectives",
}


def show_details(case: CaseFigures, console: Console) -> None:
    """Print tables of a case's devices, queues, longest operations and steps, and which steps are unlike the others."""
    if case.devices:
        show_table(_devices_table(case), console)
    if case.queue_lengths:
        show_table(_waits_table(case), console)
    if case.operations:
        show_table(_operations_table(case), console)
    if case.steps is not None:
        if len(case.steps.steps) <= MAX_ROWS:
            show_table(_steps_table(case.steps), console)
        for line in _steps_lines(case.steps):
            show_sentence(line, console, bullet="· ")


def _table(title: str, first: str, *numbers: str) -> Table:
    table = Table(Column(first), box=box.SIMPLE_HEAD, pad_edge=False)
    table.title, table.title_justify, table.title_style = title, "left", ASIDE
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def _devices_table(case: CaseFigures) -> Table:
    table = _table(
        "from a device's first operation to its last",
        "device",
        "idle",
        "computes",
        "only others",
        "collectives",
        "hidden",
    )
    for one in case.devices:
        hidden = one.hidden_collective_share
        table.add_row(
            escape(one.device),
            *(percent(part / one.seconds) if one.seconds else "–" for part in _parts(one)),
            seconds(one.collective_seconds) if one.collective_seconds else "–",
            "–" if hidden is None else percent(hidden),
        )
    return table


def _parts(one: DeviceFigures) -> tuple[float, float, float]:
    return one.idle_seconds, one.compute_seconds, one.non_compute_seconds


def _waits_table(case: CaseFigures) -> Table:
    lengths = {(one.device, one.queue): one for one in case.queue_lengths}
    table = _table("idle between operations", "queue", "host", "kernel", "others", "length", "longest")
    for one in case.idleness:
        length = lengths.get((one.device, one.queue))
        waited = (one.host_wait_seconds, one.kernel_wait_seconds, one.other_wait_seconds)
        table.add_row(
            escape(f"{one.device} {one.queue}"),
            *(seconds(each) if each else "–" for each in waited),
            "–" if length is None else figure(round(length.mean_length, 2)),
            "–" if length is None else f"{length.longest:,}",
        )
    table.caption = (
        "waiting for the host to launch, from kernel to kernel, for others; operations launched and not begun"
    )
    table.caption_justify, table.caption_style = "left", ASIDE
    return table


def _operations_table(case: CaseFigures) -> Table:
    table = _table("operations that take the most time", "operation", "number", "in all", "mean", "share")
    for one in case.operations[:MAX_ROWS]:
        table.add_row(
            escape(one.name),
            f"{one.operations:,}",
            seconds(one.seconds),
            seconds(one.mean_seconds),
            percent(one.share),
        )
    return table


def _steps_table(found: StepsFigures) -> Table:
    table = _table("steps", "step", "in all", "operations", "at work", "collectives", "hidden")
    for one in found.steps:
        exchanged = one.collective_seconds
        table.add_row(
            escape(one.name),
            seconds(one.seconds),
            f"{one.operations:,}",
            seconds(one.busy_seconds),
            seconds(exchanged) if exchanged else "–",
            percent(one.hidden_collective_seconds / exchanged) if exchanged else "–",
        )
    return table


def _steps_lines(found: StepsFigures) -> Iterator[str]:
    if account := found.account:
        yield f"a step takes {account.seconds_in_words} in the median of {account.steps}: {account.shares_in_words}"
    unlike = defaultdict[str, list[str]](list)
    for one in found.outliers:
        times = "" if one.ratio is None else f" ({figure(round(one.ratio, 2))} × the median)"
        unlike[one.step].append(f"{seconds(one.seconds)} {IN_WORDS[one.quantity]}{times}")
    for step in list(unlike)[:MAX_ROWS]:
        yield f"{step} is unlike the others: {listed(unlike[step])}"
    if len(unlike) > MAX_ROWS:
        yield f"so are {len(unlike) - MAX_ROWS:,} more"
