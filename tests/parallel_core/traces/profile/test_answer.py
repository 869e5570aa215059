"""The answer: what is decided of each thing that can bound a step, and that noise leaves open.

On figures that are made up, and on traces of real programs.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parallel_core.system.errors import RequestError
from parallel_core.traces.account import Parts
from parallel_core.traces.bounds.answer import answer_of
from parallel_core.traces.bounds.recording import Recording, Waiting
from parallel_core.traces.bounds.rules import (
    BOTH,
    INCONCLUSIVE,
    MORE_STEPS,
    NEITHER,
    ON_A_QUIET_MACHINE,
    UNKNOWN,
)
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.devices import OperationFigures
from parallel_core.traces.lanes import overlap_phrases
from parallel_core.traces.profile.analysis import analyse, without_profiler
from parallel_core.traces.profile.running import Recorded
from tests.parallel_core.traces.ranks.test_ranks import PROCESSES
from tests.parallel_core.traces.synthetic import GPU, made_case, queue_of, with_figures

STEP_SECONDS = 0.02
OPERATORS = tuple(
    OperationFigures(name, "compute", 1, seconds, seconds, seconds, seconds)
    for name, seconds in (("conv2d backward", 0.6), ("conv2d", 0.3), ("relu", 0.1))
)


def process(device: str = GPU, **figures: object) -> CaseFigures:
    """Return a case with a queue, and figures that are as given."""
    case = CaseFigures(made_case(*queue_of([(0, 1)], device=device)))
    usual = {"exchanges": 20, "early_exchanges": 15, "launching_share": 0.0}
    return with_figures(case, **{"operations": OPERATORS, **usual, **figures})


def made(
    compute: float = 0.92,
    exchange: float = 0.03,
    copy: float = 0.01,
    hidden: float | None = 0.9,
    *,
    steps: Sequence[float] = (1.0,) * 5,
    taken: float = 0.0,
    **figures: object,
) -> Recording:
    """Return the recording of a process whose steps of 20 ms consist of these shares.

    The rest of a step is idle. `hidden` is the share of the exchange that is hidden, or None
    without an exchange; `steps` has a factor for each step's computing.
    """
    exchange_seconds = 0.0 if hidden is None else 0.006
    by_step = []
    for factor in steps:
        compute_seconds = STEP_SECONDS * compute * factor
        parts = Parts(
            seconds=compute_seconds + STEP_SECONDS * (1 - compute),
            compute_seconds=compute_seconds,
            exposed_exchange_seconds=STEP_SECONDS * exchange,
            exposed_copy_seconds=STEP_SECONDS * copy,
            idle_seconds=STEP_SECONDS * (1 - compute - exchange - copy),
            exchange_seconds=exchange_seconds,
            hidden_exchange_seconds=exchange_seconds * (hidden or 0),
            copy_seconds=0.0002,
            hidden_copy_seconds=0.0001,
        )
        by_step.append(parts)
    usual = {"parts": by_step[0], "exchanging_steps": len(steps), "seconds": STEP_SECONDS}
    return Recording([process(**{**usual, **figures})], by_step, taken=taken)


def of_two(recording: Recording, **changes: object) -> Recording:
    """Return the recording of two processes that are alike."""
    return replace(recording, processes=[*recording.processes] * 2, **changes)  # type: ignore[arg-type]


def test_a_program_that_computes_and_hides_its_exchange() -> None:
    conclusion = answer_of(made())
    *_, about_first = conclusion.sentences
    assert conclusion.overlap == "overlap"
    assert conclusion.bound == "computation"
    assert conclusion.first == "operators"
    assert "conv2d backward (60 %), conv2d (30 %)" in about_first
    # Bounds stand together.
    assert " –" not in "".join(conclusion.sentences)


def test_what_happens_in_few_steps_is_told_by_how_many() -> None:
    _, _, about_overlap, _ = answer_of(made(exchanging_steps=1)).sentences
    assert "in 1 of 5 steps" in about_overlap
    assert "backward pass" not in about_overlap


def test_nothing_is_known_of_a_device_that_the_host_waited_for_in_vain() -> None:
    conclusion = answer_of(made(unseen_share=0.9))
    assert (conclusion.overlap, conclusion.bound, conclusion.first) == (UNKNOWN,) * 3
    assert answer_of(made(unseen_share=0.1)).bound == "computation"


def test_several_processes_are_one_program() -> None:
    _, _, about_overlap, _ = answer_of(of_two(made())).sentences
    assert "30 of 40" in about_overlap


@pytest.mark.parametrize(
    ("recording", "bound", "first"),
    [
        (made(0.7, 0.2), "computation", "exchange-less"),
        (made(0.7, 0.2, early_exchanges=0), "computation", "exchange-earlier"),
        (made(0.3, 0.6), "exchange", "exchange-less"),
        (made(0.3, 0.03, 0.6), "copies", "copies"),
        (made(0.2), "waiting", "waiting"),
        (made(0.2, loading_share=0.6), "waiting", "loading"),
        (made(0.47, 0.03, 0.01), INCONCLUSIVE, "waiting"),
        (made(0.88, 0.01, 0.01), "computation", INCONCLUSIVE),
        (made(0.2, 0.38, 0.01), INCONCLUSIVE, INCONCLUSIVE),
        # Load leaves open what it may have decided.
        (made(0.7, 0.02, taken=0.05), "computation", "waiting"),
        (made(0.7, 0.02, taken=0.45), INCONCLUSIVE, INCONCLUSIVE),
        (made(0.1, 0.0, 0.0, taken=0.3), "waiting", "waiting"),
    ],
)
def test_what_bounds_a_step_and_what_to_look_at_first(
    recording: Recording, bound: str, first: str
) -> None:
    conclusion = answer_of(recording)
    assert conclusion.bound == bound
    assert conclusion.first == first
    sentences = " ".join(conclusion.sentences)
    assert ("is open" in sentences) == (INCONCLUSIVE in (bound, first))


@pytest.mark.parametrize(
    ("recording", "todo"),
    [
        # As much exchange as waiting, and a tenth of a step: however often it is measured.
        (made(0.2, 0.38, 0.01), NEITHER),
        (made(0.88, 0.01, 0.01), NEITHER),
        (made(0.7, 0.02, taken=0.45), ON_A_QUIET_MACHINE),
        (made(0.55, 0.02, steps=(0.3, 0.5, 1, 2, 4)), MORE_STEPS),
        (made(0.55, 0.02, steps=(0.3, 0.5, 1, 2, 4), taken=0.2), BOTH),
    ],
)
def test_more_steps_are_asked_for_only_where_they_can_decide(
    recording: Recording, todo: str
) -> None:
    assert answer_of(recording).sentences[3].endswith(f": {todo}.")


@pytest.mark.parametrize(
    ("recording", "core_wait", "bound", "first", "says_so"),
    [
        (made(), 0.04, "computation", "operators", False),
        (made(), 0.3, "computation", "operators", True),
        # Less than half of what looks like computing was computed.
        (made(), 0.5, "cores", "cores", True),
        # Where something else bounds a step, cores do not.
        (made(0.3, 0.6), 0.3, "exchange", "exchange-less", False),
    ],
)
def test_waiting_for_a_core_is_no_computing(
    recording: Recording, core_wait: float, bound: str, first: str, says_so: bool
) -> None:
    conclusion = answer_of(replace(recording, core_wait=core_wait))
    assert conclusion.bound == bound
    assert conclusion.first == first
    assert ("waited for a core" in conclusion.sentences[1]) == says_so


def test_a_program_gives_the_same_answer_twice_or_an_inconclusive_one() -> None:
    """Around every edge, with steps that differ by a tenth."""
    generator = np.random.default_rng(0)
    for compute in np.linspace(0.3, 0.97, 10):
        exchange = (1 - compute) / 4
        bounds, firsts = set(), set()
        for _ in range(3):
            factors = 1 + 0.1 * generator.standard_normal(5)
            conclusion = answer_of(made(compute, exchange, copy=0.0, steps=factors))
            bounds.add(conclusion.bound)
            firsts.add(conclusion.first)
        assert len(bounds - {INCONCLUSIVE}) <= 1
        assert len(firsts - {INCONCLUSIVE}) <= 1


def test_of_a_step_that_the_profiler_slowed_down_nothing_is_decided() -> None:
    conclusion = answer_of(replace(made(), slowdown=1.31))
    assert conclusion.overlap == INCONCLUSIVE
    assert conclusion.bound == INCONCLUSIVE
    assert conclusion.first == INCONCLUSIVE
    assert "1.31 ×" in conclusion.sentences[1]
    assert answer_of(replace(made(), slowdown=1.29)).bound == "computation"


HOST_BOUND = PROCESSES.parent / "one_gpu" / "h100_host_bound.json.gz"


@pytest.mark.parametrize(
    ("unprofiled", "busy"), [(10.39e-3, 0.110), (5e-3, 0.228), (20e-3, 0.072), (None, 0.072)]
)
def test_a_gpu_s_kernels_are_set_against_a_step_without_the_profiler(
    unprofiled: float | None, busy: float
) -> None:
    """By CUPTI alone the GPU was busy in 11.0 % of a step, which took 10.39 ms by the clock.

    The profiler stretched it to 15.9 ms. A step that takes longer without it was another one.
    """
    run = replace(process_of(None), steps_recorded=2, unprofiled_step_seconds=unprofiled)
    conclusion = analyse({HOST_BOUND: run}).answer
    assert conclusion.step.shares["compute_seconds"].estimate == pytest.approx(busy, abs=0.001)
    assert conclusion.bound == "waiting"
    assert conclusion.first == "launching"


@pytest.mark.parametrize(
    ("device", "busy", "is_shortened"),
    [("cpu", 2, False), ("cpu:1", 2, False), (GPU, 2, True), (GPU, 9, False)],
)
def test_operators_of_a_cpu_are_stretched_themselves(
    device: str, busy: int, is_shortened: bool
) -> None:
    """With more work than time, too, the step was another one."""
    case = CaseFigures(made_case(*queue_of([(0, 1), (10 - busy, 10)], device=device)))
    assert (without_profiler(case, 5.0) is not None) == is_shortened


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
    conclusion = answer_of(made(early_exchanges=early, hidden=hidden))
    assert conclusion.overlap == overlap
    has_no_exchange = hidden is None
    assert ("of the copying is hidden" in conclusion.sentences[2]) == has_no_exchange


@pytest.mark.parametrize(
    ("waiting_share", "first"), [(0.8, "late-rank"), (0.2, "exchange-less"), (0.5, INCONCLUSIVE)]
)
def test_a_late_rank_comes_first_if_processes_wait_for_each_other(
    waiting_share: float, first: str
) -> None:
    waiting = Waiting(waiting_share, last_rank=1, last=9, exchanges=10)
    conclusion = answer_of(of_two(made(0.3, 0.6), waiting=waiting))
    _, _, about_overlap, about_first = conclusion.sentences
    assert conclusion.first == first
    is_late = first == "late-rank"
    assert ("80 % of it waiting for each other" in about_overlap) == is_late
    assert ("rank 1 came last in 9 of 10" in about_first) == is_late


@pytest.mark.parametrize("name", ["kernels_missing", "nccl_annotations_only", "ascend_strings"])
def test_of_devices_that_were_not_recorded_nothing_is_known(name: str) -> None:
    path = PROCESSES.parent / "incomplete" / f"{name}.json"
    analysis = analyse({path: process_of(None)})
    assert analysis.answer.overlap == UNKNOWN
    assert analysis.answer.bound == UNKNOWN
    assert analysis.answer.first == UNKNOWN
    # What is missing is said.
    assert all(trace.doubts for trace in analysis.traces.values())


@pytest.mark.parametrize(("seconds", "is_said"), [(0.02, True), (0.05, False)])
def test_a_share_of_copies_has_its_amount_and_is_left_out_where_it_is_none(
    seconds: float, is_said: bool
) -> None:
    sentence = answer_of(made(hidden=None, seconds=seconds)).sentences[2]
    assert ("of the copying is hidden (200 μs)" in sentence) == is_said
    assert ("copying" in sentence) == is_said


@pytest.mark.parametrize(
    ("between_two_share", "first"), [(0.9, "other-process"), (0.1, "exchange-less")]
)
def test_the_other_process_comes_first_if_most_of_the_exchange_is_between_two(
    between_two_share: float, first: str
) -> None:
    recording = of_two(made(0.3, 0.6, between_two_share=between_two_share))
    assert answer_of(recording).first == first


def process_of(rank: int | None) -> Recorded:
    """Return what a recorder reports of a process with a trace of one step."""
    return Recorded(pid=1, framework="torch", rank=rank, steps_recorded=1)


def test_the_traces_of_two_processes_are_one_program_s() -> None:
    paths = [PROCESSES / f"rank-{rank}.json.gz" for rank in (0, 1)]
    analysis = analyse({path: process_of(rank) for rank, path in enumerate(paths)})
    assert list(analysis.traces) == paths
    assert "on each of 2 processes" in analysis.answer.sentences[0]
    assert {span.device for span in analysis.timeline.spans} >= {"rank 0 cpu", "rank 1 cpu"}
    (case,) = cases_of(analysis.timeline)
    (phrase,) = overlap_phrases(CaseFigures(case))
    # No rank's exchange hides under another's computation.
    assert phrase.endswith("queues at once")


def test_a_damaged_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"no trace")
    with pytest.raises(RequestError, match=r"trace\.json\.gz"):
        analyse({path: process_of(None)})
