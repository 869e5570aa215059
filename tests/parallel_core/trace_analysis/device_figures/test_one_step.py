"""One step of a timeline: what the program launched in it, also what ran after it."""

import pytest

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.errors import RequestError
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.device_figures.steps import only_step, steps

GPU = ("gpu:0", "stream 7")
SPANS = (
    Span("launch", "host", HOST_DEVICE, "Python", 5, 9),
    Span("late", "compute", *GPU, 120, 180, 60),
    Span("unlinked", "compute", *GPU, 150, 160),
    Span("second", "compute", *GPU, 200, 240, 130),
)


def marked(*names: str) -> Timeline:
    return Timeline(
        "torch", SPANS, annotations=tuple(Window(name, 100 * n, 100 * n + 100) for n, name in enumerate(names))
    )


@pytest.mark.parametrize("names", [("ProfilerStep#7", "ProfilerStep#8"), ("epoch 1, step 7", "epoch 1, step 8")])
def test_an_operation_belongs_to_the_step_that_launched_it(names: tuple[str, str]) -> None:
    timeline = marked(*names)
    assert [span.name for span in only_step(timeline, 7).spans] == ["launch", "late"]
    assert [span.name for span in only_step(timeline, 8).spans] == ["unlinked", "second"]
    assert [one.name for one in only_step(timeline, 8).annotations] == [names[1]]


@pytest.mark.parametrize(
    ("timeline", "problem"),
    [
        (marked("ProfilerStep#7", "ProfilerStep#8"), "no step 3, but 7 to 8"),
        (marked("forward", "forward"), "no steps with numbers"),
        (marked(), "no steps with numbers"),
        (marked("gloo:all_reduce", "gloo:all_reduce"), "no steps with numbers"),
    ],
)
def test_a_step_that_is_not_there_is_refused(timeline: Timeline, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        only_step(timeline, 3)


def test_what_pytorch_annotates_itself_is_no_step() -> None:
    its_own = ("nccl:all_reduce", "Optimizer.step#SGD.step", "DistributedDataParallel.forward", "gloo:broadcast")
    (case,) = cases_of(marked(*its_own, *its_own))
    assert steps(case) is None
