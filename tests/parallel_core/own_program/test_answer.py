"""What a step consists of, and the answer: what is decided of each thing that can bound it, and
that noise leaves open.

On traces of real programs, on spans whose figures are known, and on figures that are made up.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core.own_program.analysis import analyse
from parallel_core.own_program.answer import UNKNOWN, Answer, answer
from parallel_core.own_program.bounds import Waiting
from parallel_core.own_program.deciding import (
    BOTH,
    INCONCLUSIVE,
    MORE_STEPS,
    NEITHER,
    ON_A_QUIET_MACHINE,
)
from parallel_core.own_program.running import Recorded
from parallel_core.own_program.step_figures import (
    KEEPING,
    QueueShare,
    StepFigures,
    step_figures,
    without_profiler,
)
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import overlap_phrases
from parallel_core.trace_analysis.parts import Parts
from tests.parallel_core.own_program.recorded_programs import RECORDED_STEPS, recorded
from tests.parallel_core.trace_analysis.ranks.test_ranks import PROCESSES


@pytest.mark.parametrize(
    ("name", "exchanges", "early", "least", "most"),
    [
        ("ddp-buckets", 4, 3, 0.7, 0.9),
        ("ddp-one-bucket", 1, 0, 0, 0.05),
        ("ddp-no-sync", 0, 0, None, None),
    ],
)
def test_exchanges_are_launched_while_the_backward_pass_goes_on_but_for_the_last_bucket(
    name: str, exchanges: int, early: int, least: float | None, most: float | None
) -> None:
    found = step_figures(recorded(name), RECORDED_STEPS)
    assert (found.exchanges, found.early_exchanges) == (
        exchanges * RECORDED_STEPS,
        early * RECORDED_STEPS,
    )
    if least is None or most is None:
        assert (found.hidden_exchange_share, found.exchange_seconds) == (None, 0)
    else:
        assert found.hidden_exchange_share is not None
        assert least <= found.hidden_exchange_share < most
    parts = (
        found.compute_share,
        found.exposed_exchange_share,
        found.exposed_copy_share,
        found.idle_share,
    )
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(1)
    assert found.operators[0][0] == "addmm backward"


def span(name: str, kind: str, queue: str, start: int, end: int) -> Span:
    return Span(name, kind, "gpu:0", queue, start, end, None, name)  # type: ignore[arg-type]


def test_shares_of_a_step_with_all_parts() -> None:
    spans = (
        span("matmul", "compute", "stream 7", 0, 40),
        span("copy", "copy", "stream 8", 20, 50),
        span("nccl", "exchange", "stream 9", 30, 70),
        span("relu backward", "compute", "stream 7", 80, 100),
    )
    loading = (Window("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 70, 80),)
    found = step_figures(Timeline("torch", spans, annotations=loading), 2)
    parts = (
        found.compute_share,
        found.exposed_exchange_share,
        found.exposed_copy_share,
        found.idle_share,
    )
    assert parts == pytest.approx((0.6, 0.3, 0.0, 0.1))
    assert (found.step_seconds, found.loading_share) == pytest.approx((50e-9, 0.1))
    assert (found.hidden_exchange_share, found.hidden_copy_share) == pytest.approx(
        (10 / 40, 20 / 30)
    )
    assert (found.exchange_seconds, found.copy_seconds) == pytest.approx((20e-9, 15e-9))
    assert found.early_exchanges == 1, "the next operator after it is of the backward pass"


def test_a_step_in_which_the_recording_ended_is_cut() -> None:
    spans = tuple(span("matmul", "compute", "stream 7", start, start + 5) for start in (0, 10, 20))
    steps = tuple(Window(f"ProfilerStep#{start}", start, start + 10) for start in (0, 10, 20))
    assert step_figures(
        Timeline("torch", spans, annotations=steps), 2
    ).step_seconds == pytest.approx(10e-9)


def test_keeping_a_gradient_is_no_backward_pass_to_hide_under() -> None:
    kept = span("add", "compute", "stream 7", 5, 9)._replace(operator=KEEPING)
    found = step_figures(Timeline("torch", (span("nccl", "exchange", "stream 9", 0, 9), kept)), 1)
    assert (found.exchanges, found.early_exchanges) == (1, 0)


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
    """Make a process whose steps of 20 ms consist of shares, in each step with some times as much
    computing.
    """
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
    ("process", "taken", "bound", "first"),
    [
        (made(0.7, 0.2), 0, "computation", "exchange-less"),
        (made(0.7, 0.2, early=0), 0, "computation", "exchange-earlier"),
        (made(0.3, 0.6), 0, "exchange", "exchange-less"),
        (made(0.3, 0.03, 0.6), 0, "copies", "copies"),
        (made(0.2), 0, "waiting", "waiting"),
        (made(0.2, loading=0.6), 0, "waiting", "loading"),
        (made(0.47, 0.03, 0.01), 0, INCONCLUSIVE, "waiting"),
        (made(0.88, 0.01, 0.01), 0, "computation", INCONCLUSIVE),
        (made(0.2, 0.38, 0.01), 0, INCONCLUSIVE, INCONCLUSIVE),
        # Load leaves open what it may have decided.
        (made(0.7, 0.02), 0.05, "computation", "waiting"),
        (made(0.7, 0.02), 0.45, INCONCLUSIVE, INCONCLUSIVE),
        (made(0.1, 0.0, 0.0), 0.3, "waiting", "waiting"),
    ],
)
def test_what_bounds_a_step_and_what_to_look_at_first(
    process: StepFigures, taken: float, bound: str, first: str
) -> None:
    found = answer([process], taken=taken)
    assert decided(found) == (bound, first)
    assert found.sentences[2].count("Inconclusive") == (INCONCLUSIVE in decided(found))


@pytest.mark.parametrize(
    ("process", "taken", "todo"),
    [
        # As much exchange as waiting, and a tenth of a step: however often it is measured.
        (made(0.2, 0.38, 0.01), 0.0, NEITHER),
        (made(0.88, 0.01, 0.01), 0.0, NEITHER),
        (made(0.7, 0.02), 0.45, ON_A_QUIET_MACHINE),
        (made(0.55, 0.02, steps=(0.3, 0.5, 1, 2, 4)), 0.0, MORE_STEPS),
        (made(0.55, 0.02, steps=(0.3, 0.5, 1, 2, 4)), 0.2, BOTH),
    ],
)
def test_more_steps_are_asked_for_only_where_they_can_decide(
    process: StepFigures, taken: float, todo: str
) -> None:
    assert answer([process], taken=taken).sentences[2].endswith(f": {todo}.")


@pytest.mark.parametrize(
    ("process", "core_wait", "bound", "first", "says_so"),
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
    process: StepFigures, core_wait: float, bound: str, first: str, says_so: bool
) -> None:
    found = answer([process], core_wait=core_wait)
    assert decided(found) == (bound, first)
    assert ("waited for a core" in found.sentences[2]) == says_so


def test_a_program_gives_the_same_answer_twice_or_an_inconclusive_one() -> None:
    """Around every edge, with steps that differ by a tenth."""
    generator = np.random.default_rng(0)
    for compute in np.linspace(0.3, 0.97, 10):
        shares = (compute, (1 - compute) / 4, 0.0)
        twice = [
            answer([made(*shares, steps=1 + 0.1 * generator.standard_normal(5))]) for _ in range(3)
        ]
        for said in ("bound", "first"):
            assert len({getattr(found, said) for found in twice} - {INCONCLUSIVE}) <= 1


def test_of_a_step_that_the_profiler_slowed_down_nothing_is_decided() -> None:
    found = answer([made()], slowdown=1.31)
    assert (found.overlap, *decided(found)) == (INCONCLUSIVE,) * 3
    assert "1.31 ×" in found.sentences[2]
    assert answer([made()], slowdown=1.29).bound == "computation"


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
    run = replace(process(None), steps_recorded=2, unprofiled_step_seconds=unprofiled)
    found = analyse({HOST_BOUND: run}).answer
    assert found.step.shares["compute_seconds"].estimate == pytest.approx(busy, abs=0.001)
    assert decided(found) == ("waiting", "launching")


@pytest.mark.parametrize("device", ["cpu", "cpu:1"])
def test_operators_of_a_cpu_are_stretched_themselves(device: str) -> None:
    on_cpu = replace(made(0.2), queues=(QueueShare(device, "thread", 0.2),))
    assert without_profiler(on_cpu, 0.01) == on_cpu
    assert without_profiler(made(0.2), 0.01).is_without_profiler
    # More work than time: the step was another one.
    assert not without_profiler(made(0.9), 0.01).is_without_profiler


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
    late, early, neither = (
        answer([made(0.3, 0.6)] * 2, Waiting(share, last_rank=1, last=9, exchanges=10))
        for share in (0.8, 0.2, 0.5)
    )
    assert (late.first, early.first, neither.first) == ("late-rank", "exchange-less", INCONCLUSIVE)
    assert "80 % of it waiting for each other" in late.sentences[1]
    assert "rank 1 came last in 9 of 10" in late.sentences[2]


@pytest.mark.parametrize("name", ["kernels_missing", "nccl_annotations_only", "ascend_strings"])
def test_of_devices_that_were_not_recorded_nothing_is_known(name: str) -> None:
    path = PROCESSES.parent / "incomplete" / f"{name}.json"
    found = analyse({path: process(None)})
    assert (found.answer.overlap, *decided(found.answer)) == (UNKNOWN,) * 3
    assert found.notes, "what is missing is said"


@pytest.mark.parametrize(("milliseconds", "is_said"), [(2.0, True), (0.09, False)])
def test_a_share_of_copies_has_its_amount_and_is_left_out_where_it_is_none(
    milliseconds: float, is_said: bool
) -> None:
    process = replace(made(hidden=None), hidden_copy_share=0.4, copy_seconds=milliseconds / 1000)
    sentence = answer([process]).sentences[1]
    assert ("40 % of the copying (2.00 ms in a step)" in sentence) == is_said
    assert ("copying" in sentence) == is_said


def test_a_pipeline_s_receives_wait_for_the_other_process() -> None:
    spans = (
        span("linear", "compute", "thread", 0, 40),
        span("gloo:send", "exchange", "gloo", 40, 50),
        span("gloo:recv", "exchange", "gloo", 50, 100),
        span("gloo:all_reduce", "exchange", "gloo", 100, 120),
    )
    found = step_figures(Timeline("torch", spans), 1)
    assert found.between_two_share == pytest.approx(60 / 80)
    apart, together = (
        answer([replace(made(0.3, 0.6), between_two_share=share)] * 2) for share in (0.9, 0.1)
    )
    assert (apart.first, together.first) == ("other-process", "exchange-less")


def process(rank: int | None) -> Recorded:
    return Recorded(1, "torch", rank, "optimizer", 9, 1, Path("trace"), "")


def test_the_traces_of_two_processes_are_one_program_s() -> None:
    paths = [PROCESSES / f"rank-{rank}.json.gz" for rank in (0, 1)]
    found = analyse({path: process(rank) for rank, path in enumerate(paths)})
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
        analyse({path: process(None)})
