"""Print a timeline: its figures in tables and lines, and the clock's beside them."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.terminal.console import ASIDE, DOUBTFUL
from parallel_core.terminal.layout import (
    busiest,
    count_rest,
    show_sentence,
    show_sentences,
    show_table,
    table_of,
)
from parallel_core.trace_analysis.critical_path import PathCauses, PathPart
from parallel_core.trace_analysis.figures import CaseFigures
from parallel_core.trace_analysis.interference import Beside, Price
from parallel_core.trace_analysis.profiling_run import DISPATCH, SECONDS, Agreement

BESIDE: Mapping[Beside, str] = {
    "anything": "beside other operations",
    "compute": "beside computation",
    "copy": "beside copies",
    "exchange": "beside an exchange",
}
MAX_PATH_PARTS = 3
"""So many parts of a critical path are named; the rest are added up."""
MAX_FULL_CASES = 3
"""If there are no more cases, and none is the main one, all are printed in full."""
MIN_SHARE = 0.005
"""Smaller shares of a critical path would be written as 0 %."""


def show_figures(figures: Sequence[CaseFigures], console: Console, main: str | None = None) -> None:
    """Print a row for each of several cases, and the case called `main` in full; None: all, if they
    are few.
    """
    if len(figures) > 1:
        show_table(_cases_table(figures), console)
    for case in figures:
        if case.case == main or (main is None and len(figures) <= MAX_FULL_CASES):
            _show_case(case, console)


def _show_case(case: CaseFigures, console: Console) -> None:
    if not case.queues:
        show_sentence(f"“{case.case}”: the profiler recorded nothing in it", console)
        return
    show_table(_queues_table(case), console)
    show_sentences(_case_lines(case), console, bullet="· ")


def _cases_table(figures: Sequence[CaseFigures]) -> Table:
    headings = ("done after", "control returned", "queues at once", "hidden", "idle")
    table = table_of("by the trace", "case", *headings)
    for case in figures:
        table.add_row(
            case.case,
            seconds(case.seconds),
            _or_dash(case.dispatch_fraction),
            "–" if case.queues_at_once is None else figure(case.queues_at_once),
            _or_dash(case.hidden_share),
            percent(case.idle_share),
        )
    return table


def _queues_table(case: CaseFigures) -> Table:
    title = f"“{case.case}”, {seconds(case.seconds)} by the trace"
    if case.slowed_in_words:
        title += f", {case.slowed_in_words}"
    table = table_of(
        title, "queue", "spans", "busy", "gaps", "idle in gaps", "longest gap", style="bold"
    )
    for queue in busiest(case.queues, lambda queue: queue.busy_seconds):
        waits = (
            f", waits {percent(queue.waiting_seconds / case.seconds)}"
            if queue.waiting_seconds
            else ""
        )
        table.add_row(
            f"{queue.device} {queue.queue}",
            f"{queue.spans:,}",
            percent(queue.busy_share) + waits,
            f"{queue.gaps:,}",
            seconds(queue.gap_seconds) if queue.gaps else "–",
            seconds(queue.longest_gap_seconds) if queue.gaps else "–",
        )
    count_rest(table, len(case.queues))
    return table


def _case_lines(case: CaseFigures) -> Iterator[str]:
    if case.slowed_in_words:
        # Where the time went would be where the profiler's went.
        return
    parts = case.parts
    exchanging = [device for device in case.devices if device.collective_seconds]
    whose = "the same device's computation" if len(exchanging) > 1 else "computation"
    for what, whole, hidden, under in (
        ("exchange", parts.exchange_seconds, parts.hidden_exchange_seconds, whose),
        ("copying", parts.copy_seconds, parts.hidden_copy_seconds, "computation"),
    ):
        if whole:
            yield (
                f"overlap: {percent(hidden / whole)} of the {what} ({seconds(hidden)} of "
                f"{seconds(whole)}) lay under {under}"
            )
    yield from (row.in_words for row in case.unhidden)
    if case.critical_path.parts:
        yield f"critical path: {_path(case)}"
        if causes := case.critical_path.causes:
            yield f"what bounds it: {_causes(causes, case.critical_path.seconds)}"
    if waits := case.waits:
        yield (
            f"from launch to start: {seconds(waits.median_seconds)} in the median of "
            f"{waits.operations:,} "
            f"operations, {seconds(waits.percentile_90_seconds)} at the 90th percentile, "
            f"{seconds(waits.longest_seconds)} at most"
        )
    if case.control_returned_seconds is not None and case.dispatch_fraction is not None:
        yield (
            f"control returned after {seconds(case.control_returned_seconds)}, "
            f"{percent(case.dispatch_fraction)} of the time"
        )


def show_prices(prices: Sequence[Price], console: Console) -> None:
    """Print in one line how much operations beside them slow computations down; nothing if it is
    not known.
    """
    # Beside anything only if the trace does not distinguish the kinds.
    apart = [price for price in prices if price.beside != "anything"] or prices
    if apart:
        named = [
            f"{with_bounds(Interval(one.ratio, one.low, one.high))} × {BESIDE[one.beside]}"
            for one in apart
        ]
        show_sentence(
            f"the price of overlap: a computation takes {listed(named)}, over its isolated time",
            console,
            bullet="· ",
        )


def show_agreements(
    agreements: Sequence[Agreement], console: Console, main: str | None = None, asked: str = SECONDS
) -> None:
    """Print the same quantities by the trace and by the clock, and why they differ if they do.

    Of the quantities that every case has, only those of the case called `main` are listed: its
    time, and the metric that the experiment `asked` for. Of the rest only the number that agree is
    printed.
    """
    listed_ones = [
        one
        for one in agreements
        if one.quantity not in (SECONDS, DISPATCH)
        or (one.case == main and one.quantity in (SECONDS, asked))
    ]
    if listed_ones:
        show_table(_agreements_table(listed_ones), console)
    for one in listed_ones:
        if not one.agree:
            show_sentence(f"“{one.case}”: {one.sentence}", console, DOUBTFUL, bullet="! ")
    if others := [one for one in agreements if one not in listed_ones]:
        show_sentence(
            f"Of the other times, and shares of them after which control returned, "
            f"{sum(one.agree and not one.too_noisy for one in others)} of {len(others)} agree "
            "within the noise.",
            console,
            ASIDE,
        )


def _agreements_table(agreements: Sequence[Agreement]) -> Table:
    table = table_of("", "case", "quantity", "trace", "clock", "noise", "verdict")
    table.columns[1].justify = "left"
    table.columns[1].no_wrap = True
    for one in agreements:
        by_trace, by_clock, noise = (
            seconds(value) if one.quantity == SECONDS else figure(round(value, 3))
            for value in (one.by_trace, one.by_clock, one.noise)
        )
        same = "too noisy" if one.too_noisy else "agree"
        verdict = same if one.agree else Text("differ", DOUBTFUL)
        table.add_row(one.case, one.quantity, by_trace, by_clock, f"± {noise}", verdict)
    return table


def _or_dash(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _causes(causes: PathCauses, seconds: float) -> str:
    parts = {
        "computation": causes.compute_seconds,
        "copies": causes.copy_seconds,
        "collectives": causes.exchange_seconds,
        "the host": causes.host_seconds,
        "returning from waits": causes.waiting_seconds,
        "delays from launch to start": causes.launch_delay_seconds,
        "delays between operations": causes.queue_delay_seconds,
    }
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return listed(
        [
            f"{percent(part / seconds)} {name}"
            for name, part in ordered
            if part / seconds >= MIN_SHARE
        ]
    )


def _length(parts: Sequence[PathPart]) -> str:
    """Say what share of a critical path some parts take, the longest of which stands first."""
    longest, shortest = percent(parts[0].share), percent(parts[-1].share)
    if parts[0].share < MIN_SHARE:
        return f"less than {percent(MIN_SHARE)} each"
    if len(parts) == 1:
        return longest
    return f"{longest} each" if longest == shortest else f"at most {longest} each"


def _path(case: CaseFigures) -> str:
    path = case.critical_path
    parts = [part for part in path.parts[:MAX_PATH_PARTS] if part.share >= MIN_SHARE]
    named = [f"{percent(part.share)} {part.name} on {part.device} {part.queue}" for part in parts]
    # Many that are too short to be named may be all that there is.
    rest = path.parts[len(parts) :]
    rest_share = sum(part.share for part in rest)
    if sum(part.share for part in rest if part.share < MIN_SHARE) < MIN_SHARE:
        rest = tuple(part for part in rest if part.share >= MIN_SHARE)
    if rest_share >= MIN_SHARE:
        names = f"{len(rest):,} {'other ' if named else ''}name{'s' if len(rest) > 1 else ''}"
        named.append(f"{percent(rest_share)} in {names} of {_length(rest)}")
    if path.idle_share >= MIN_SHARE:
        named.append(f"{percent(path.idle_share)} idle")
    return listed(named)
