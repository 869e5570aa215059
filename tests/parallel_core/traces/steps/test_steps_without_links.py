"""Steps of a profile that links no operation to its launch, of devices behind their host."""

import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core.traces.case_spans import cases_of
from tests.parallel_core.traces.steps.test_steps import steps_of
from tests.parallel_core.traces.synthetic import FIRST, SECOND, sorted_by_start

MS = 1_000_000


def lagging(steps: int, *, extra: bool = False) -> Timeline:
    """Return what a profiler without links says of devices that are behind their host: each step
    multiplies twice on one device and once on the other, in 10 ms, and the host launches in 1 ms.
    """
    spans = []
    for number in range(steps):
        begin = 10 * number * MS
        spans += [
            Span("dot", "compute", FIRST, "compute", begin, begin + 4 * MS),
            Span("dot", "compute", FIRST, "compute", begin + 4 * MS, begin + 8 * MS),
            Span("dot", "compute", SECOND, "compute", begin, begin + 8 * MS),
        ]
    if extra:
        spans.append(Span("dot", "compute", FIRST, "compute", 10 * steps * MS, 11 * steps * MS))
    windows = tuple(Window(f"ProfilerStep#{n}", n * MS, (n + 1) * MS) for n in range(steps))
    return Timeline("mxnet", sorted_by_start(spans), annotations=windows)


def test_without_links_operations_that_repeat_are_dealt_out_to_the_steps() -> None:
    (case,) = cases_of(lagging(5))
    figures = steps_of(case)
    assert [step.operations for step in figures.steps] == [3] * 5
    compute_seconds = [step.parts.compute_seconds for step in figures.steps]
    assert compute_seconds == pytest.approx([0.008] * 5)
    seconds = [step.parts.seconds for step in figures.steps]
    assert seconds == pytest.approx([0.008, 0.01, 0.01, 0.01, 0.01])
    assert figures.account is not None
    assert figures.account.steps == 5


def test_without_links_an_operation_more_leaves_only_the_mean_step() -> None:
    (case,) = cases_of(lagging(5, extra=True))
    account = steps_of(case).account
    assert account is not None
    assert account.steps == 1
    assert account.seconds == pytest.approx(case.seconds / 5)
