"""What is printed of queues, operations, steps and ranks: readable in 80 columns, and only what a trace has."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from backends.profiling import Span, Timeline
from backends.profiling.collectives import Collective
from parallel_core.system.formatting import percent
from parallel_core.terminal.timeline import show_figures
from parallel_core.terminal.trace import show_details, show_ranks
from parallel_core.trace_analysis.figures import CaseFigures, figures_of, timeline_figures
from parallel_core.trace_analysis.ranks import summary_of
from parallel_core.trace_analysis.trace_files import RankTrace
from tests.parallel_core.terminal.printed import in_words, printed
from tests.parallel_core.trace_analysis.synthetic import made_case, queue_of
from tests.parallel_core.trace_analysis.traces import LINKED, case_of_trace

MS = 1_000_000


def shown(found: CaseFigures) -> str:
    return printed(show_figures, (found,), width=80) + printed(show_details, found, width=80)


@pytest.fixture(scope="module")
def ddp() -> CaseFigures:
    return figures_of(case_of_trace("ddp"))


@pytest.mark.parametrize("name", LINKED)
def test_real_traces_fit_in_80_columns(name: str) -> None:
    text = shown(figures_of(case_of_trace(name)))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not re.search("None|nan", text)


def test_queues_operations_steps_and_both_shares_of_hidden_communication_are_told(ddp: CaseFigures) -> None:
    text = in_words(shown(ddp))
    assert ddp.parts.hidden_exchange_share is not None
    assert f"overlap: {percent(ddp.parts.hidden_exchange_share)} of the exchange" in text
    assert "of collectives only, device by device: 3 % (1.41 ms of 46.9 ms), as Holistic Trace Analysis counts" in text
    assert "gpu:0 90 % 3.2 % 7.1 % 46.9 ms 3 %" in text
    assert "gpu:0 stream 7 597 ms 89.1 μs 1.49 ms 0.04 4" in text
    assert "ProfilerStep#6 225 ms" in text
    assert re.search(r"a step takes 222 ms \(\d+ ms … \d+ ms\) in the median of 3: ", text)
    assert "ProfilerStep#6 is unlike the other steps:" in text
    assert re.search(r"nccl\S+ number 15, in all 46.8 ms, mean 3.12 ms, share 69 %", text)
    assert "what bounds it: 100 % the host" in text


def test_names_are_whole_for_their_ends_tell_them_apart_and_many_steps_left_to_the_json(ddp: CaseFigures) -> None:
    assert ddp.steps is not None
    arguments = [f"argument_{number}" for number in range(9)]
    longest = replace(ddp.operations[0], name=f"kernel<{', '.join(arguments)}>")
    many = replace(ddp.steps, steps=ddp.steps.steps * 20)
    text = in_words(shown(replace(ddp, operations=(longest,), steps=many)))
    assert [one for one in arguments if one not in text] == []
    assert "ProfilerStep#4" not in text
    assert "ProfilerStep#6 is unlike the other steps" in text


def test_of_what_a_trace_does_not_have_nothing_is_said() -> None:
    text = shown(figures_of(made_case(*queue_of([(0, 1), (2, 3)]))))
    assert "operations that take the most time" in text
    assert not re.search("step|collectives alone|idle between|None|nan", text)


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


def of_ranks(ranks: int, width: int = 80, world_size: int | None = None) -> str:
    traces = {rank: replace(of_rank(rank, ranks), world_size=world_size or ranks) for rank in range(ranks)}
    return printed(show_ranks, summary_of(traces), width=width)


@pytest.mark.parametrize("ranks", [2, 8, 9, 64])
def test_no_rank_is_cut_off_in_eighty_columns(ranks: int) -> None:
    assert "…" not in of_ranks(ranks)
    assert of_ranks(ranks).split() == of_ranks(ranks, width=200).split()


def test_few_ranks_have_a_row_each_with_median_and_spread() -> None:
    lines = of_ranks(3).splitlines()
    first, last = (next(line.split() for line in lines if line.startswith(f" {rank} ")) for rank in (0, 2))
    assert first[1:5] == ["113", "ms", "100", "ms"]
    # Time, computing, communication, hidden, idle, waited, last.
    assert last[1:] == ["113", "ms", "102", "ms", "11.0", "ms", "0", "%", "0", "%", "0", "ms", "1"]
    assert any(line.split()[:3] == ["spread", "0", "ms"] for line in lines)
    assert "straggler: rank 2 came last in 1 of 1 collectives" in of_ranks(3, width=200)
    assert of_ranks(2, world_size=128).startswith("2 ranks of 128")


def test_many_ranks_have_their_extremes_and_who_they_belong_to() -> None:
    lines = [line.split() for line in of_ranks(64).splitlines()]
    assert ["computing", "100", "ms", "0", "132", "ms", "163", "ms", "63", "63.0", "ms"] in lines
    assert ["waited", "0", "ms", "63", "31.5", "ms", "63.0", "ms", "0", "63.0", "ms"] in lines
    assert len(lines) < 20
