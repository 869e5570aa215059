"""Print figures of a timeline as their declarations say: tables of rows, and lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from backends.profiling import HOST_DEVICE
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.terminal.layout import (
    busiest,
    count_rest,
    show_sentence,
    show_sentences,
    show_table,
    table_of,
)
from parallel_core.traces.account import bounds_in_words
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.evidence.interference import Beside, Price
from parallel_core.traces.figures import COUNT, RATIO, SECONDS, SHARE, figures_of_level

BESIDE: Mapping[Beside, str] = {
    "anything": "beside other operations",
    "compute": "beside computation",
    "copy": "beside copies",
    "exchange": "beside an exchange",
}
NOTHING = "–"
"""The text of a cell whose figure is unknown."""
MAX_FULL_CASES = 3
"""The most cases that are all printed in full, if none of them is the main one."""
WRITE: Mapping[object, Callable[[Any], str]] = {
    SECONDS: seconds,
    SHARE: percent,
    RATIO: lambda value: figure(round(value, 2)),
    COUNT: lambda value: f"{value:,}",
    None: str,
}
"""How figures are written, by unit."""


@dataclass(frozen=True)
class Columns:
    """A table of rows: its title, its first heading, the names that tell rows apart, and the
    headings of figures.
    """

    title: str
    first: str
    names: Sequence[str]
    headings: Mapping[str, str]
    most: str = ""
    """The figure by which the busiest rows are chosen if they are many; empty: the first ones."""


CASES = Columns(
    "by the trace",
    "case",
    ("case",),
    {
        "seconds": "done after",
        "dispatch_fraction": "control returned",
        "queues_at_once": "queues at once",
        "hidden_share": "hidden",
        "idle_share": "idle",
    },
)
QUEUES = Columns(
    "",
    "queue",
    ("device", "queue"),
    {
        "spans": "spans",
        "busy_share": "busy",
        "waiting_seconds": "waits",
        "gaps": "gaps",
        "gap_seconds": "idle in gaps",
        "longest_gap_seconds": "longest gap",
    },
    most="busy_seconds",
)


def show_rows(rows: Sequence[object], columns: Columns, console: Console) -> None:
    """Print a table of rows, the busiest if they are many; nothing without rows."""
    if not rows:
        return
    table: Table = table_of(columns.title, columns.first, *columns.headings.values())
    for row in busiest(rows, lambda row: getattr(row, columns.most or columns.names[0], 0)):
        name = " ".join(str(getattr(row, name)) for name in columns.names)
        table.add_row(name, *(written(row, figure_name) for figure_name in columns.headings))
    count_rest(table, len(rows))
    show_table(table, console)


def written(row: Any, name: str) -> str:
    """Write a figure of a row in its unit; a dash if it is not known."""
    return written_value(type(row), name, getattr(row, name))


def written_value(level: type, name: str, value: Any) -> str:
    """Write a value of a figure of a class of rows; a dash if it is not known."""
    return NOTHING if value is None else WRITE[figures_of_level(level)[name].unit](value)


def show_figures(figures: Sequence[CaseFigures], console: Console, main: str | None = None) -> None:
    """Print a table of several cases, and the case called `main` in full.

    Without a main case all are printed in full, if they are few.
    """
    if len(figures) > 1:
        show_rows(figures, CASES, console)
    shows_all = main is None and len(figures) <= MAX_FULL_CASES
    for case in figures:
        if shows_all or case.case == main:
            _show_case(case, console)


def _show_case(case: CaseFigures, console: Console) -> None:
    """Print a case's queues, and sentences on its figures."""
    if not case.queues:
        show_sentence(f"“{case.case}”: the profiler recorded nothing in it", console)
        return
    title = f"“{case.case}”, {seconds(case.seconds)} by the trace"
    if case.slowed_in_words:
        title += f", {case.slowed_in_words}"
    show_sentence(title, console, "bold")
    show_rows(case.queues, QUEUES, console)
    show_sentences(case_lines(case), console, bullet="· ")


def case_lines(case: CaseFigures) -> Iterator[str]:
    """Yield sentences on the overlap, what bounds a case, and its waits.

    There are none if the profiler slowed the case down: they would be about the profiler.
    """
    if case.slowed_in_words:
        return
    parts = case.parts
    for what, whole, hidden in (
        ("exchange", parts.exchange_seconds, parts.hidden_exchange_seconds),
        ("copying", parts.copy_seconds, parts.hidden_copy_seconds),
    ):
        if whole:
            share = percent(hidden / whole)
            times = f"{seconds(hidden)} of {seconds(whole)}"
            yield f"overlap: {share} of the {what} ({times}) lay alongside computation"
    for unhidden in case.unhidden:
        yield unhidden.in_words
    if parts.seconds:
        has_host = any(queue.device == HOST_DEVICE for queue in case.queues)
        yield f"what bounds it: {bounds_in_words(parts, has_host)}"
    if waits := case.waits:
        yield (
            f"from launch to start: {seconds(waits.median_seconds)} in the median of "
            f"{waits.operations:,} operations, {seconds(waits.percentile_90_seconds)} at the 90th "
            f"percentile, {seconds(waits.longest_seconds)} at most"
        )
    if case.control_returned_seconds is not None and case.dispatch_fraction is not None:
        yield (
            f"control returned after {seconds(case.control_returned_seconds)}, "
            f"{percent(case.dispatch_fraction)} of the time"
        )


def show_prices(prices: Sequence[Price], console: Console) -> None:
    """Print how much other operations slow a computation down, if that is known.

    The price beside any operation is printed only if the trace does not distinguish their kinds.
    """
    shown = [price for price in prices if price.beside != "anything"] or prices
    if not shown:
        return
    in_words = []
    for price in shown:
        ratio = with_bounds(Interval(price.ratio, price.low, price.high))
        in_words.append(f"{ratio} × {BESIDE[price.beside]}")
    show_sentence(
        f"the price of overlap: a computation takes {listed(in_words)}, over its isolated time",
        console,
        bullet="· ",
    )
