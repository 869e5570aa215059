"""Steps of a profile that links no operation to its launch, of devices behind their host."""

import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.steps.figures import steps
from tests.parallel_core.trace_analysis.synthetic import FIRST, SECOND

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
    marked = tuple(Window(f"ProfilerStep#{n}", n * MS, (n + 1) * MS) for n in range(steps))
    return Timeline("mxnet", sorted(spans, key=lambda span: span.start), annotations=marked)


def test_without_links_operations_that_repeat_are_dealt_out_to_the_steps() -> None:
    (case,) = cases_of(lagging(5))
    found = steps(case)
    assert found is not None
    assert [one.operations for one in found.steps] == [3] * 5
    assert [one.parts.compute_seconds for one in found.steps] == pytest.approx([0.008] * 5)
    assert [one.parts.seconds for one in found.steps] == pytest.approx([0.008, *[0.01] * 4])
    assert found.account is not None
    assert found.account.steps == 5
    (case,) = cases_of(lagging(5, extra=True))
    found = steps(case)
    assert found is not None
    assert found.account is None
