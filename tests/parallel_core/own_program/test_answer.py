"""The answer: what is decided of each thing that can bound a step, and that noise leaves it open."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parallel_core.own_program.answer import INCONCLUSIVE, Answer, Waiting, analyse, answer
from parallel_core.own_program.running import Recorded
from parallel_core.own_program.step_figures import QueueShare, StepFigures
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import overlap_phrases
from parallel_core.trace_analysis.parts import Parts

TWO_PROCESSES = Path(__file__).parents[1] / "trace_analysis" / "traces" / "two_processes"


def made(
    compute: float = 0.92,
    exchange: float = 0.03,
    copy: float = 0.01,
    hidden: float | None = 0.9,
    *,
    steps: Sequence[float] = (1.0,) * 5,
    early: int = 15,
    loading: float = 0.0,
) -> StepFigures:
    """Make a process whose steps of 20 ms consist of shares, in each step with some times as much computing."""
    exchanged, idle = 0.0 if hidden is None else 0.006, 1 - compute - exchange - copy
    by_step = []
    for factor in steps:
        parts = [0.02 * part for part in (compute * factor, exchange, copy, idle)]
        by_step.append(Parts(sum(parts), *parts, exchanged, exchanged * (hidden or 0), 0.0002, 0.0))
    queues = (QueueShare("gpu:0", "stream 7", compute), QueueShare("gpu:0", "stream 9", 0.3))
    operators = (("conv2d backward", 0.6), ("conv2d", 0.3))
    whole = (compute, exchange, copy, idle, 0.006, hidden, 0.0002, 0.0, 20, early, loading)
    return StepFigures(len(steps), 0.02, queues, *whole, operators, tuple(by_step))


def decided(found: Answer) -> tuple[str, str]:
    return found.bound, found.first


def test_a_program_that_computes_and_hides_its_exchange() -> None:
    found = answer([made()])
    assert (found.overlap, *decided(found)) == ("overlap", "computation", "operators")
    assert "gpu:0 stream 7 92 % and gpu:0 stream 9 30 %" in found.sentences[0]
    assert "conv2d backward (60 %) and conv2d (30 %)" in found.sentences[2]
    assert " –" not in "".join(found.sentences), "bounds stand together"


def test_several_processes_are_one_program() -> None:
    found = answer([made(), made(0.8, 0.15, hidden=0.7)])
    assert "5 recorded on each of 2 processes" in found.sentences[0]
    assert "gpu:0 stream 7 80 % to 92 %" in found.sentences[0]
    assert found.overlap == "overlap"
    assert "30 of 40" in found.sentences[1]
    assert found.step.shares["compute_seconds"].estimate == pytest.approx(0.86)


@pytest.mark.parametrize(
    ("process", "bound", "first"),
    [
        (made(0.7, 0.2), "computation", "exchange-less"),
        (made(0.7, 0.2, early=0), "computation", "exchange-earlier"),
        (made(0.3, 0.6), "exchange", "exchange-less"),
        (made(0.3, 0.03, 0.6), "copies", "copies"),
        (made(0.2), "waiting", "waiting"),
        (made(0.2, loading=0.6), "waiting", "loading"),
        (made(0.47, 0.03, 0.01), INCONCLUSIVE, "waiting"),
        (made(0.88, 0.01, 0.01), "computation", INCONCLUSIVE),
        (made(0.2, 0.38, 0.01), INCONCLUSIVE, INCONCLUSIVE),
    ],
)
def test_what_bounds_a_step_and_what_to_look_at_first(process: StepFigures, bound: str, first: str) -> None:
    found = answer([process])
    assert decided(found) == (bound, first)
    assert found.sentences[2].count("Inconclusive") == (INCONCLUSIVE in decided(found))


def test_a_program_gives_the_same_answer_twice_or_an_inconclusive_one() -> None:
    """Around every edge, with steps that differ by a tenth."""
    generator = np.random.default_rng(0)
    for compute in np.linspace(0.3, 0.97, 10):
        shares = (compute, (1 - compute) / 4, 0.0)
        twice = [answer([made(*shares, steps=1 + 0.1 * generator.standard_normal(5))]) for _ in range(3)]
        for said in ("bound", "first"):
            assert len({getattr(found, said) for found in twice} - {INCONCLUSIVE}) <= 1


def test_load_leaves_open_what_it_may_have_decided() -> None:
    assert decided(answer([made(0.7, 0.02)], taken=0.05)) == ("computation", "waiting")
    assert decided(answer([made(0.7, 0.02)], taken=0.45)) == (INCONCLUSIVE, INCONCLUSIVE)
    assert decided(answer([made(0.1, 0.0, 0.0)], taken=0.3)) == ("waiting", "waiting")


def test_of_a_step_that_the_profiler_slowed_down_nothing_is_decided() -> None:
    found = answer([made()], slowdown=1.31)
    assert (found.overlap, *decided(found)) == (INCONCLUSIVE,) * 3
    assert "1.31 ×" in found.sentences[2]
    assert answer([made()], slowdown=1.29).bound == "computation"


@pytest.mark.parametrize(
    ("early", "hidden", "overlap"),
    [
        (0, 0.9, "overlap"),
        (0, 0.3, "none"),
        (15, 0.3, "some"),
        (15, 0.05, "none"),
        (15, 0.5, INCONCLUSIVE),
        (15, None, "no-exchange"),
    ],
)
def test_an_exchange_is_hidden_also_elsewhere_than_under_the_backward_pass(
    early: int, hidden: float | None, overlap: str
) -> None:
    found = answer([replace(made(early=early, hidden=hidden), hidden_copy_share=0.55)])
    assert found.overlap == overlap
    assert ("55 % of the copying" in found.sentences[1]) == (hidden is None)


def test_processes_that_wait_for_each_other_are_said_to() -> None:
    processes = [made(0.3, 0.6)] * 2
    found = answer(processes, Waiting(0.8, last_rank=1, last=9, exchanges=10))
    assert found.first == "late-rank"
    assert "80 % of it waiting for each other" in found.sentences[1]
    assert "rank 1 came last in 9 of 10" in found.sentences[2]
    assert answer(processes, Waiting(0.2, last_rank=1, last=9, exchanges=10)).first == "exchange-less"
    assert answer(processes, Waiting(0.5, last_rank=1, last=9, exchanges=10)).first == INCONCLUSIVE


def process(rank: int | None, steps: int) -> Recorded:
    return Recorded(1, "torch", rank, "optimizer", 9, steps, Path("trace"), "")


def test_two_processes_are_one_program() -> None:
    paths = [TWO_PROCESSES / f"rank-{rank}.json.gz" for rank in (0, 1)]
    found = analyse({path: process(rank, 1) for rank, path in enumerate(paths)})
    assert list(found.figures) == paths
    assert "1 recorded on each of 2 processes" in found.answer.sentences[0]
    assert {span.device for span in found.timeline.spans} >= {"rank 0 cpu", "rank 1 cpu"}
    (case,) = cases_of(found.timeline)
    (phrase,) = overlap_phrases(figures_of(case))
    assert phrase.endswith("queues at once"), "no rank's exchange hides under another's computation"


def test_a_damaged_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"no trace")
    with pytest.raises(RequestError, match=r"trace\.json\.gz"):
        analyse({path: process(None, 1)})
