"""The table of several ranks fits eighty columns, for two ranks and for sixty-four."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from backends.profiling import Span, Timeline
from backends.profiling.collectives import Collective
from parallel_core.terminal.ranks import show_ranks
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.ranks import summary_of
from parallel_core.trace_analysis.trace_files import RankTrace

MS = 1_000_000


def of_rank(rank: int, ranks: int) -> RankTrace:
    """Make up a rank that computes the longer the higher its number is; the others wait for it."""
    computing, end = (100 + rank) * MS, (110 + ranks) * MS
    spans = (
        Span("matmul", "compute", "gpu:0", "stream 7", 0, computing),
        Span("AllReduce", "exchange", "gpu:0", "stream 9", computing, end),
    )
    timeline = Timeline("torch", spans)
    met = Collective("allreduce", "0", None, "9", computing, end)
    return RankTrace(Path(f"{rank}.json"), rank, ranks, timeline, 2, timeline_figures(timeline), (met,), 0)


def shown(ranks: int, width: int = 80, world_size: int | None = None) -> str:
    traces = {rank: replace(of_rank(rank, ranks), world_size=world_size or ranks) for rank in range(ranks)}
    stream = StringIO()
    show_ranks(summary_of(traces), Console(file=stream, width=width, highlight=False))
    return stream.getvalue()


@pytest.mark.parametrize("ranks", [2, 8, 9, 64])
def test_nothing_is_cut_off_in_eighty_columns(ranks: int) -> None:
    assert "…" not in shown(ranks)
    assert shown(ranks).split() == shown(ranks, width=200).split()


def test_few_ranks_have_a_row_each_with_median_and_spread() -> None:
    lines = shown(3).splitlines()
    first, last = (next(line.split() for line in lines if line.startswith(f" {rank} ")) for rank in (0, 2))
    assert first[1:5] == ["113", "ms", "100", "ms"]
    # Time, computing, communication, hidden, idle, waited, last.
    assert last[1:] == ["113", "ms", "102", "ms", "11.0", "ms", "0", "%", "0", "%", "0", "ms", "1"]
    assert any(line.split()[:3] == ["spread", "0", "ms"] for line in lines)
    assert "straggler: rank 2 came last in 1 of 1 collectives" in shown(3, width=200)


def test_many_ranks_have_their_extremes_and_who_they_belong_to() -> None:
    lines = [line.split() for line in shown(64).splitlines()]
    assert ["computing", "100", "ms", "0", "132", "ms", "163", "ms", "63", "63.0", "ms"] in lines
    assert ["waited", "0", "ms", "63", "31.5", "ms", "63.0", "ms", "0", "63.0", "ms"] in lines
    assert len(lines) < 20


def test_ranks_that_are_not_there_are_counted() -> None:
    assert shown(2, world_size=128).startswith("2 ranks of 128")
