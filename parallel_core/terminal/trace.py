"""Print a trace or a program's recording: the answer first, on one screen; tables of all levels
with details; several ranks side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from statistics import fmean

from rich.console import Console
from rich.table import Column, Table

from backends.profiling import Doubt
from parallel_core.measurement.confidence_intervals import Interval, with_seconds
from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.terminal.console import ASIDE
from parallel_core.terminal.layout import show_sentence, show_sentences, show_table, table_of
from parallel_core.terminal.timeline import (
    NOTHING,
    QUEUES,
    Columns,
    case_lines,
    show_figures,
    show_prices,
    show_rows,
    written,
    written_value,
)
from parallel_core.traces.bounds.answer import Answer, answer_of_trace
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.evidence.interference import Price
from parallel_core.traces.profile.analysis import Analysis
from parallel_core.traces.ranks import RankFigures, Ranks
from parallel_core.traces.ranks.reading import RankTrace
from parallel_core.traces.reasons import ExchangeFigures, Unhidden
from parallel_core.traces.steps.figures import StepsFigures
from parallel_core.traces.trust import in_one_line

NEXT = "Details: --details    Perfetto: --perfetto x.json    One step: --step N"
MAX_ROWS = 6
"""The most operations or steps that are listed; the JSON has all of them."""
MAX_REASONS = 3
"""The most kinds of exchange and copy on the first screen."""
IDLENESS = Columns(
    "idle between operations: waiting for the host to launch, from kernel to kernel, for other "
    "queues",
    "queue",
    ("device", "queue"),
    {
        "idle_seconds": "idle",
        "host_wait_seconds": "host",
        "kernel_wait_seconds": "kernel",
        "other_wait_seconds": "other queues",
    },
    most="idle_seconds",
)
OPERATIONS = Columns(
    "operations that take the most time",
    "operation",
    ("name",),
    {"operations": "number", "seconds": "in all", "mean_seconds": "mean", "share": "share"},
)
STEPS = Columns(
    "steps",
    "step",
    ("name",),
    {
        "seconds": "time",
        "host_seconds": "on the host",
        "operations": "operations",
        "busy_seconds": "at work",
        "exchange_seconds": "exchanging",
    },
)
EXCHANGES = Columns(
    "exchanges of a step (of the recording, if it marks none) by process group: launched in the "
    "forward or backward pass, or after both",
    "exchange, and why it is not hidden",
    ("in_words",),
    {
        "launched": "launched",
        "number": "number",
        "seconds": "time",
        "hidden_share": "hidden",
        "waited_seconds": "waiting",
    },
    most="seconds",
)
IN_WORDS = {
    "seconds": "in all",
    "busy_seconds": "at work",
    "exchange_seconds": "exchanging",
}
RANKS = {
    "seconds": "time",
    "compute_seconds": "computing",
    "communication_seconds": "communication",
    "hidden_share": "hidden",
    "idle_share": "idle",
    "waited_seconds": "waited",
}
"""The headings of ranks' figures."""
MAX_RANKS = 8
"""The most ranks that are listed one by one."""


def show_trace(rank: RankTrace, with_details: bool, with_exchanges: bool, console: Console) -> None:
    """Print the answer of a program's trace, or the figures of an experiment's cases."""
    answer = answer_of_trace(rank.figures)
    if answer is None:
        show_figures(rank.figures, console)
        show_prices(rank.prices, console)
    else:
        show_answer(answer, rank.figures[0].unhidden, rank.doubts, console)
    if answer is None or with_details:
        show_sentence(f"{rank.timeline.source}: {rank.spans:,} spans", console, "bold")
        if answer is not None:
            show_details(rank.figures[0], rank.prices, console)
        show_sentences(rank.notes, console, ASIDE, bullet="· ")
    elif not with_exchanges:
        show_sentence(NEXT, console, ASIDE)
    if with_exchanges:
        show_exchanges(rank.figures[0].exchanges_by_pass, [rank], console)


def show_analysis(analysis: Analysis, console: Console) -> None:
    """Print what is said of a program's processes."""
    doubts = [doubt for trace in analysis.traces.values() for doubt in trace.doubts]
    show_answer(analysis.answer, analysis.unhidden, doubts, console)


def show_answer(
    answer: Answer, unhidden: Sequence[Unhidden], doubts: Sequence[Doubt], console: Console
) -> None:
    """Print the answer, why something was not hidden, what is unusual, and how far to trust it."""
    show_sentences((said for said in answer.sentences if said != answer.look_first), console)
    if unhidden:
        _show_reasons(unhidden, console)
    show_sentences(filter(None, (answer.look_first,)), console)
    process = answer.recording.processes[0]
    if process.steps is not None:
        show_sentences(list(_steps_lines(process.steps))[:2], console, bullet="· ")
    show_sentence(in_one_line(doubts, process.waits is not None), console)


def _show_reasons(unhidden: Sequence[Unhidden], console: Console) -> None:
    """Print a table of the kinds that took the most time, why, and what helps."""
    table = Table(Column("not hidden"), Column("why"), Column("what helps"))
    for row in unhidden[:MAX_REASONS]:
        time = row.unhidden_seconds / (row.steps or 1)
        table.add_row(f"{seconds(time)} {row.name}", row.sentence, row.remedy or NOTHING)
    if len(unhidden) > MAX_REASONS:
        table.add_row(f"(+{len(unhidden) - MAX_REASONS})")
    show_table(table, console)


def show_details(case: CaseFigures, prices: Sequence[Price], console: Console) -> None:
    """Print tables of a case's queues, longest operations and steps, and all sentences."""
    show_rows(case.queues, QUEUES, console)
    show_sentences(case_lines(case), console, bullet="· ")
    show_prices(prices, console)
    show_rows(case.idleness, IDLENESS, console)
    show_rows(case.operations[:MAX_ROWS], OPERATIONS, console)
    if case.steps is not None:
        if len(case.steps.steps) <= MAX_ROWS:
            show_rows(case.steps.steps, STEPS, console)
        show_sentences(_steps_lines(case.steps), console, bullet="· ")


def show_exchanges(
    exchanges: Sequence[ExchangeFigures], ranks: Sequence[RankTrace], console: Console
) -> None:
    """Print a table of exchanges, and what it cost to hide them, if the traces say it."""
    show_rows(exchanges, EXCHANGES, console)
    prices = [price for rank in ranks for price in rank.prices if price.beside == "exchange"]
    if exchanges and prices:
        hidden = sum(row.hidden_seconds for row in exchanges)
        steps = exchanges[0].steps or 1
        bounds = zip(*(astuple(price.lost_seconds) for price in prices), strict=True)
        lost = Interval(*(fmean(of_ranks) / steps for of_ranks in bounds))
        cost = "no longer" if lost.low <= 0 else f"{with_seconds(lost)} longer"
        show_sentence(
            f"hidden: {seconds(hidden)}, for which computing took {cost}, by the operations that "
            "can be compared",
            console,
            bullet="· ",
        )


def _steps_lines(steps: StepsFigures) -> Iterator[str]:
    """Yield sentences on pauses, and on steps that are unlike the others."""
    if steps.pause is not None:
        yield steps.pause.in_words
    unlike = list(dict.fromkeys(outlier.step for outlier in steps.outliers))
    for step in unlike[:MAX_ROWS]:
        quantities = []
        for outlier in steps.outliers:
            if outlier.step == step:
                times = "" if outlier.ratio is None else f" ({figure(round(outlier.ratio, 2))} ×)"
                quantities.append(f"{seconds(outlier.seconds)}{times} {IN_WORDS[outlier.quantity]}")
        yield f"{step} differs from the median: {listed(quantities)}"
    if len(unlike) > MAX_ROWS:
        yield f"{len(unlike) - MAX_ROWS:,} more steps differ"


def show_ranks(ranks: Ranks, console: Console) -> None:
    """Print the table of several ranks, the straggler, and the notes, within 80 columns."""
    are_few = len(ranks.by_rank) <= MAX_RANKS
    table = _rows_of_ranks(ranks) if are_few else _rows_of_figures(ranks)
    show_table(table, console)
    show_sentences((_straggler(ranks), *map(str, ranks.notes)), console, bullet="· ")


def _title(ranks: Ranks) -> str:
    """Write the number of ranks: `4 ranks`, or `4 ranks of 8` if traces are missing."""
    count = len(ranks.by_rank)
    if ranks.world_size in (None, count):
        return f"{count} ranks"
    return f"{count} ranks of {ranks.world_size}"


def _rows_of_ranks(ranks: Ranks) -> Table:
    """Return the table with a row for each rank, and rows for the median and the spread."""
    table = table_of(_title(ranks), "rank", *RANKS.values(), "last", style="bold")
    for rank in ranks.by_rank:
        last = f"{rank.arrived_last:,}" if rank.matched_collectives else NOTHING
        table.add_row(str(rank.rank), *(written(rank, name) for name in RANKS), last)
    table.add_section()
    for kind in ("median", "spread"):
        spreads = [(name, getattr(ranks.spread.get(name), kind, None)) for name in RANKS]
        table.add_row(
            kind, *(written_value(RankFigures, name, value) for name, value in spreads), ""
        )
    return table


def _rows_of_figures(ranks: Ranks) -> Table:
    """Return the table with a row for each figure, over all ranks."""
    headings = ("least", "rank", "median", "most", "rank", "spread")
    table = table_of(_title(ranks), "", *headings, style="bold")
    for name, heading in RANKS.items():
        spread = ranks.spread.get(name)
        if spread is not None:
            least, middle, most, apart = (
                written_value(RankFigures, name, value)
                for value in (spread.least, spread.median, spread.most, spread.spread)
            )
            ends = (str(spread.least_rank), str(spread.most_rank))
            table.add_row(heading, least, ends[0], middle, most, ends[1], apart)
    return table


def _straggler(ranks: Ranks) -> str:
    """Say which rank the others waited for, or that there is no such rank."""
    if not ranks.matched_collectives:
        return "no straggler can be named: no collective was found on all ranks"
    if ranks.straggler is None:
        collectives = f"{ranks.matched_collectives:,} collectives"
        return f"no straggler: in {collectives} all ranks waited about equally long"
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
