"""Print a timeline: its figures in tables and lines."""

from collections.abc import Iterator, Mapping, Sequence

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
from parallel_core.traces.evidence.interference import Beside, Price
from parallel_core.traces.figures import CaseFigures

BESIDE: Mapping[Beside, str] = {
    "anything": "beside other operations",
    "compute": "beside computation",
    "copy": "beside copies",
    "exchange": "beside an exchange",
}
NOTHING = "–"
"""The text of a cell without a figure."""
MAX_FULL_CASES = 3
"""The most cases that are all printed in full, if none of them is the main one."""


def show_figures(figures: Sequence[CaseFigures], console: Console, main: str | None = None) -> None:
    """Print a table of several cases, and the case called `main` in full.

    Without a main case all are printed in full, if they are few.
    """
    if len(figures) > 1:
        show_table(_cases_table(figures), console)
    shows_all = main is None and len(figures) <= MAX_FULL_CASES
    for case in figures:
        if shows_all or case.case == main:
            _show_case(case, console)


def _show_case(case: CaseFigures, console: Console) -> None:
    """Print a case's queues, and sentences on its figures."""
    if not case.queues:
        show_sentence(f"“{case.case}”: the profiler recorded nothing in it", console)
        return
    show_table(_queues_table(case), console)
    show_sentences(_case_lines(case), console, bullet="· ")


def _cases_table(figures: Sequence[CaseFigures]) -> Table:
    """Return the table of several cases."""
    headings = ("done after", "control returned", "queues at once", "hidden", "idle")
    table = table_of("by the trace", "case", *headings)
    for case in figures:
        queues_at_once = NOTHING
        if case.queues_at_once is not None:
            queues_at_once = figure(case.queues_at_once)
        table.add_row(
            case.case,
            seconds(case.seconds),
            _percent_or_dash(case.dispatch_fraction),
            queues_at_once,
            _percent_or_dash(case.hidden_share),
            percent(case.idle_share),
        )
    return table


def _queues_table(case: CaseFigures) -> Table:
    """Return the table of a case's queues."""
    title = f"“{case.case}”, {seconds(case.seconds)} by the trace"
    if case.slowed_in_words:
        title += f", {case.slowed_in_words}"
    table = table_of(
        title, "queue", "spans", "busy", "gaps", "idle in gaps", "longest gap", style="bold"
    )
    for queue in busiest(case.queues, lambda queue: queue.busy_seconds):
        busy = percent(queue.busy_share)
        if queue.waiting_seconds:
            waiting_share = queue.waiting_seconds / case.seconds
            busy += f", waits {percent(waiting_share)}"
        idle_in_gaps = longest_gap = NOTHING
        if queue.gaps:
            idle_in_gaps = seconds(queue.gap_seconds)
            longest_gap = seconds(queue.longest_gap_seconds)
        table.add_row(
            f"{queue.device} {queue.queue}",
            f"{queue.spans:,}",
            busy,
            f"{queue.gaps:,}",
            idle_in_gaps,
            longest_gap,
        )
    count_rest(table, len(case.queues))
    return table


def _overlap_line(what: str, whole: float, hidden: float, under: str) -> str:
    """Say which share of the seconds of a kind of work lay under other work."""
    share = percent(hidden / whole)
    return (
        f"overlap: {share} of the {what} ({seconds(hidden)} of {seconds(whole)}) lay under {under}"
    )


def _case_lines(case: CaseFigures) -> Iterator[str]:
    """Yield sentences on the overlap, what bounds a case, and its waits.

    There are none if the profiler slowed the case down: they would be about the profiler.
    """
    if case.slowed_in_words:
        return
    parts = case.parts
    if parts.exchange_seconds:
        exchanging = [device for device in case.devices if device.collective_seconds]
        under = "the same device's computation" if len(exchanging) > 1 else "computation"
        hidden = parts.hidden_exchange_seconds
        yield _overlap_line("exchange", parts.exchange_seconds, hidden, under)
    if parts.copy_seconds:
        hidden = parts.hidden_copy_seconds
        yield _overlap_line("copying", parts.copy_seconds, hidden, "computation")
    for unhidden in case.unhidden:
        yield unhidden.in_words
    if parts.seconds:
        has_host = any(queue.device == HOST_DEVICE for queue in case.queues)
        yield f"what bounds it: {bounds_in_words(parts, has_host)}"
    if waits := case.waits:
        median = seconds(waits.median_seconds)
        percentile_90 = seconds(waits.percentile_90_seconds)
        longest = seconds(waits.longest_seconds)
        yield (
            f"from launch to start: {median} in the median of {waits.operations:,} operations, "
            f"{percentile_90} at the 90th percentile, {longest} at most"
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
    written = []
    for price in shown:
        ratio = with_bounds(Interval(price.ratio, price.low, price.high))
        written.append(f"{ratio} × {BESIDE[price.beside]}")
    show_sentence(
        f"the price of overlap: a computation takes {listed(written)}, over its isolated time",
        console,
        bullet="· ",
    )


def _percent_or_dash(share: float | None) -> str:
    """Write a share in percent; a dash if it is not known."""
    return NOTHING if share is None else percent(share)
