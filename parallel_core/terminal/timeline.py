"""What a person sees of a timeline: its figures in tables and lines, and the clock's beside them."""

from collections.abc import Iterator, Sequence

from humanize import metric
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parallel_core.formatting import figure, listed, percent
from parallel_core.trace_analysis.clock_agreement import DISPATCH, SECONDS, Agreement, Overhead
from parallel_core.trace_analysis.figures import CaseFigures, QueueFigures

__all__ = ["show_agreements", "show_figures"]

LONGEST_PARTS = 3
"""So many parts of a critical path are named; the others are added up."""
FEW = 3
"""So many cases are all shown in full where no main one is named."""
MIN_SHARE = 0.005
"""Smaller shares of a critical path would be written as 0%."""
EVERY_CASE = (SECONDS, DISPATCH)


def show_figures(figures: Sequence[CaseFigures], console: Console, main: str | None = None) -> None:
    """Print a row for each case where they are several, and the one called `main` in full; None: all, where few."""
    if len(figures) > 1:
        console.print(cases_table(figures))
    for found in figures:
        if found.case == main or (main is None and len(figures) <= FEW):
            show_case(found, console)


def show_case(found: CaseFigures, console: Console) -> None:
    """Print one case: a table of its queues, and a line each for overlap, critical path and waits."""
    if not found.queues:
        console.print(f"“{escape(found.case)}”: the profiler saw nothing in it")
        return
    console.print(queues_table(found))
    for line in lines(found):
        console.print(f"· {escape(line)}")


def cases_table(figures: Sequence[CaseFigures]) -> Table:
    """Make the table of cases: how long each took, how much of it went on at once."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="by the trace", title_justify="left", title_style="dim")
    made.add_column("case", overflow="fold")
    for heading in ("done after", "control returned", "queues at once", "hidden", "idle"):
        made.add_column(heading, justify="right")
    for found in figures:
        made.add_row(
            escape(found.case),
            metric(found.seconds, "s"),
            _or_dash(found.dispatch_fraction),
            "–" if found.queues_at_once is None else figure(found.queues_at_once),
            _or_dash(found.hidden_share),
            percent(found.idle_share),
        )
    return made


def queues_table(found: CaseFigures) -> Table:
    """Make the table of a case's queues."""
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"“{escape(found.case)}”, {metric(found.seconds, 's')} by the trace",
        title_justify="left",
        title_style="bold",
    )
    made.add_column("queue", overflow="fold")
    for heading in ("spans", "busy", "gaps", "idle in gaps", "longest gap"):
        made.add_column(heading, justify="right")
    for queue in found.queues:
        made.add_row(
            escape(f"{queue.device} {queue.queue}"),
            f"{queue.spans:,}",
            _busy(queue, found.seconds),
            f"{queue.gaps:,}",
            metric(queue.gap_seconds, "s") if queue.gaps else "–",
            metric(queue.longest_gap_seconds, "s") if queue.gaps else "–",
        )
    return made


def lines(found: CaseFigures) -> Iterator[str]:
    """Say what overlapped, what the critical path is made of, and how long operations waited."""
    if found.hidden_share is not None:
        yield (
            f"overlap: {percent(found.hidden_share)} of the communication "
            f"({metric(found.hidden_seconds, 's')} of {metric(found.communication_seconds, 's')}) "
            "lay under computation"
        )
    if found.critical_path.parts:
        yield f"critical path: {_path(found)}"
    if found.waits is not None:
        waits = found.waits
        yield (
            f"from launch to start: {metric(waits.median_seconds, 's')} in the median of {waits.operations:,} "
            f"operations, {metric(waits.percentile_90_seconds, 's')} at the 90th percentile, "
            f"{metric(waits.longest_seconds, 's')} at most"
        )
    if found.control_returned_seconds is not None and found.dispatch_fraction is not None:
        yield (
            f"control returned after {metric(found.control_returned_seconds, 's')}, "
            f"{percent(found.dispatch_fraction)} of the time"
        )


def show_agreements(
    agreements: Sequence[Agreement],
    overhead: Overhead | None,
    console: Console,
    main: str | None = None,
    asked: str = SECONDS,
) -> None:
    """Print the same quantities by the trace and by the clock, why they differ where they do, and the overhead.

    What every case has is shown of the case called `main` alone: its time, and the metric that the experiment `asked`
    for. Of the rest those that agree are counted.
    """
    shown = [
        one
        for one in agreements
        if one.quantity not in EVERY_CASE or (one.case == main and one.quantity in (SECONDS, asked))
    ]
    if shown:
        console.print(agreements_table(shown))
    for one in shown:
        if not one.agree:
            console.print(f"! “{escape(one.case)}”: {escape(one.sentence)}", style="yellow")
    if others := [one for one in agreements if one not in shown]:
        agreeing = sum(one.agree for one in others)
        console.print(
            f"Of the other times, and shares of them after which control returned, {agreeing} of {len(others)} agree "
            "within the noise.",
            style="dim",
        )
    if overhead is not None:
        console.print(overhead.sentence, style="dim")


def agreements_table(agreements: Sequence[Agreement]) -> Table:
    """Make the table of quantities by the trace and by the clock."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("case", overflow="fold")
    made.add_column("quantity", no_wrap=True)
    for heading in ("by trace", "by clock", "noise", ""):
        made.add_column(heading, justify="right")
    for one in agreements:
        made.add_row(
            escape(one.case),
            one.quantity,
            _write(one, one.by_trace),
            _write(one, one.by_clock),
            f"± {_write(one, one.noise)}",
            "agree" if one.agree else "[yellow]differ[/]",
        )
    return made


def _write(agreement: Agreement, value: float) -> str:
    return metric(value, "s") if agreement.quantity == SECONDS else figure(round(value, 3))


def _or_dash(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _busy(queue: QueueFigures, seconds: float) -> str:
    if not queue.waiting_seconds:
        return percent(queue.busy_share)
    return f"{percent(queue.busy_share)}, waits {percent(queue.waiting_seconds / seconds)}"


def _path(found: CaseFigures) -> str:
    path = found.critical_path
    parts = [part for part in path.parts if part.share >= MIN_SHARE]
    named = [f"{percent(part.share)} {part.name} on {part.device} {part.queue}" for part in parts[:LONGEST_PARTS]]
    if rest := parts[LONGEST_PARTS:]:
        named.append(f"{percent(sum(part.share for part in rest))} others")
    if path.idle_share >= MIN_SHARE:
        named.append(f"{percent(path.idle_share)} idle")
    return listed(named)
