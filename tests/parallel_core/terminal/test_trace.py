"""What is printed of a trace: all that was computed and no more, readable in 80 columns, short
where there is much.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from backends.profiling import Span, Timeline, Window
from backends.profiling.collectives import Collective
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.terminal.timeline import show_figures
from parallel_core.terminal.trace import show_answer, show_details, show_exchanges, show_ranks
from parallel_core.traces.bounds.answer import answer_of_trace
from parallel_core.traces.cases import CaseFigures, timeline_figures
from parallel_core.traces.evidence.interference import Price
from parallel_core.traces.ranks import summary_of
from parallel_core.traces.ranks.reading import RankTrace, read_ranks
from parallel_core.traces.reasons import ExchangeFigures
from tests.backends.profiling.events import ns
from tests.parallel_core.terminal.printed import in_words, printed
from tests.parallel_core.traces.evidence.test_interference import priced
from tests.parallel_core.traces.stored import case_of_trace
from tests.parallel_core.traces.synthetic import (
    FIRST,
    JOINT,
    made_case,
    overlap_timeline,
    queue_of,
    with_figures,
)

MS = 1_000_000


def shown(timeline: Timeline, main: str | None = None, width: int = 100) -> str:
    """Return what is printed of a timeline's cases."""
    return printed(show_figures, timeline_figures(timeline), main=main, width=width)


def in_full(figures: CaseFigures) -> str:
    """Return all that is printed of a case, in 80 columns."""
    return printed(show_details, figures, (), width=80)


@pytest.fixture(scope="module")
def ddp() -> CaseFigures:
    """The figures of a recorded training on two GPUs."""
    return CaseFigures(case_of_trace("ddp"))


@pytest.mark.parametrize("width", [80, 100])
def test_a_case_is_shown_by_queue_and_in_lines(width: int) -> None:
    printed_text = shown(overlap_timeline(), JOINT, width)
    assert all(len(line) <= width for line in printed_text.splitlines())
    text = in_words(printed_text)
    for words in (
        "cpu:1 compute 50 98 % 0 ms 0 0 ms 0 ms",
        "host Python 101 1 % 202 ms 0 0 ms 0 ms",
        "98 % of the copying (196 ms of 200 ms) lay alongside computation",
        "what bounds it: 98 % computing and 2 % copies only",
        "from launch to start: 99.0 ms in the median of 100 operations, 178 ms at the 90th",
        "control returned after 2.00 ms, 1 % of the time",
    ):
        assert words in text


def test_a_title_says_that_the_profiler_slowed_a_case_down_and_nothing_is_divided_by_it() -> None:
    slowed_down = replace(overlap_timeline(), timed={JOINT: 0.05})
    text = in_words(shown(slowed_down, JOINT))
    assert "slowed down by the profiler: 4.1 × the time" in text
    assert not re.search("overlap:|bounds", text)
    as_fast = replace(overlap_timeline(), timed={JOINT: 0.2})
    assert "slowed down" not in shown(as_fast, JOINT)


def test_of_what_a_trace_does_not_have_nothing_is_said() -> None:
    timeline = Timeline("made up", queue_of([(0, 1), (2, 3)]))
    text = in_words(shown(timeline))
    assert "what bounds it: 67 % computing and 33 % waiting" in text
    assert not re.search("overlap|launch|control|None|nan", text)
    (case,) = timeline_figures(timeline)
    full_text = in_full(case)
    assert "operations that take the most time" in full_text
    assert not re.search("step|collectives alone|None|nan", full_text)


def test_a_case_in_which_the_profiler_saw_nothing_is_named() -> None:
    cases = (Window("[first]", 0, ns(2)), Window("[bold]", ns(5), ns(6)))
    timeline = Timeline("made up", queue_of([(0, 1)], device=FIRST), cases)
    assert "“[bold]”: the profiler recorded nothing in it" in shown(timeline)


def test_of_many_cases_only_the_main_one_is_shown_in_full() -> None:
    hours = range(20)
    cases = tuple(Window(f"case {hour}", ns(hour), ns(hour + 1)) for hour in hours)
    spans = queue_of([(hour, hour + 0.5) for hour in hours])
    timeline = Timeline("made up", spans, cases)
    text = shown(timeline, "case 7")
    assert all(f"case {hour} " in text for hour in hours)
    assert re.findall("“(.*)”", text) == ["case 7"]
    assert "“" not in shown(timeline)


STORED = Path(__file__).parents[1] / "traces/stored"


@pytest.mark.parametrize("path", sorted(STORED.rglob("*.json*")), ids=lambda path: path.name)
def test_the_answer_of_a_real_trace_fits_a_screen_and_all_else_80_columns(path: Path) -> None:
    (rank,) = read_ranks([path]).values()
    answer = answer_of_trace(rank.figures)
    assert answer is not None
    case = rank.figures[0]
    of_answer = printed(show_answer, answer, case.unhidden, rank.doubts, width=80).rstrip()
    # The command adds a line on what to do next.
    assert of_answer.count("\n") + 1 < 24
    assert of_answer.startswith(("A step takes ", "The recording, which marks no steps, takes "))
    of_exchanges = printed(show_exchanges, case.exchanges_by_pass, [rank], width=80)
    assert bool(of_exchanges) == bool(case.exchanges_by_pass)
    text = f"{of_answer}\n{of_exchanges}\n{in_full(case)}"
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    assert not re.search(r"None\b(?! of)|nan", text)


def test_what_hiding_costs_is_said_where_it_is_known() -> None:
    rows = ExchangeFigures(
        "all_reduce",
        "",
        "backward",
        steps=2,
        number=1,
        seconds=5e-3,
        hidden_seconds=4e-3,
        unhidden=None,
        collectives=(),
    )
    (rank,) = read_ranks([STORED / "linked/ddp.json.gz"]).values()

    def said(*prices: Price) -> str:
        ranks = [replace(rank, prices=prices), replace(rank, prices=())]
        return in_words(printed(show_exchanges, [rows], ranks, width=80))

    # In two steps twelve multiplications took 2.08 ms beside an exchange, and 1.18 ms alone.
    *_, beside_exchange = priced(20, 12)
    assert "hidden: 4.00 ms, for which computing took 5.40 ms (" in said(beside_exchange)
    no_loss = replace(beside_exchange, lost_seconds=Interval(1e-3, -1e-3, 3e-3))
    assert "computing took no longer" in said(no_loss)
    assert "hidden:" not in said(*priced(20, 12, "copy"))


def test_of_many_queues_the_busiest_are_shown_in_their_order_and_the_rest_is_counted() -> None:
    busy_devices = list(range(7, 1000, 50))

    def work(device: int, start: int) -> Span:
        end = start + (50 if device in busy_devices else 1)
        return Span("work", "compute", f"gpu:{device}", "stream 7", start, end, start - 10)

    # Each device has two operations, with a gap between them.
    operations = [work(device, start) for start in (10, 100) for device in range(1000)]
    text = in_full(CaseFigures(made_case(*operations)))
    shown_devices = [int(number) for number in re.findall(r"^ ?gpu:(\d+) ", text, re.MULTILINE)]
    # In the table of queues; the others choose by what they show.
    assert shown_devices[: len(busy_devices)] == busy_devices
    assert text.count("(+980)") == 2


def test_names_are_whole_for_their_ends_tell_them_apart(ddp: CaseFigures) -> None:
    arguments = [f"argument_{number}" for number in range(9)]
    longest = replace(ddp.operations[0], name=f"kernel<{', '.join(arguments)}>")
    text = in_words(in_full(with_figures(ddp, operations=(longest,))))
    assert all(argument in text for argument in arguments)


def test_many_steps_are_left_to_the_json(ddp: CaseFigures) -> None:
    assert ddp.steps is not None
    many = replace(ddp.steps, steps=ddp.steps.steps * 20)
    text = in_words(in_full(with_figures(ddp, steps=many)))
    assert "ProfilerStep#4" not in text
    assert "ProfilerStep#6 differs from the median" in text


def of_ranks(ranks: int, width: int = 80) -> str:
    """Return what is printed of ranks: each computes a millisecond longer than the one before.

    All of them exchange until the same moment, so each waits for the last one.
    """
    end = (110 + ranks) * MS
    traces = {}
    for rank in range(ranks):
        computed = (100 + rank) * MS
        spans = (
            Span("matmul", "compute", "gpu:0", "stream 7", 0, computed),
            Span("AllReduce", "exchange", "gpu:0", "stream 9", computed, end),
        )
        timeline = Timeline("torch", spans)
        collective = Collective("allreduce", "0", None, "9", computed, end)
        traces[rank] = RankTrace(
            Path(f"{rank}.json"),
            rank,
            world_size=ranks,
            timeline=timeline,
            spans=len(spans),
            figures=timeline_figures(timeline),
            collectives=(collective,),
            begin=0,
        )
    return printed(show_ranks, summary_of(traces), width=width)


@pytest.mark.parametrize("ranks", [2, 8, 9, 64])
def test_no_rank_is_cut_off_in_eighty_columns(ranks: int) -> None:
    assert "…" not in of_ranks(ranks)
    assert of_ranks(ranks).split() == of_ranks(ranks, width=200).split()


def test_many_ranks_have_their_extremes_and_who_they_belong_to() -> None:
    rows = [in_words(line) for line in of_ranks(64).splitlines()]
    assert "computing 100 ms 0 132 ms 163 ms 63 63.0 ms" in rows
    assert "waited 0 ms 63 31.5 ms 63.0 ms 0 63.0 ms" in rows
    assert len(rows) < 20
