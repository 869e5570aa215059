"""A single step is found by its number, holds what it launched, and is cut out of its timeline."""

from pathlib import Path

import pytest

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.system.errors import RequestError
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.ranks.reading import read_ranks
from parallel_core.traces.steps.figures import numbered_step, only_step
from tests.parallel_core.traces.made_up_trace import MadeUpTrace
from tests.parallel_core.traces.steps.test_steps import steps_of
from tests.parallel_core.traces.stored import TRACES, figures_of
from tests.parallel_core.traces.synthetic import GPU, sorted_by_start

MS = 1_000_000

SPANS = (
    Span("launch", "host", HOST_DEVICE, "Python", 5, 9),
    Span("late", "compute", GPU, "stream 7", 120, 180, 60),
    Span("unlinked", "compute", GPU, "stream 7", 150, 160),
    Span("second", "compute", GPU, "stream 7", 200, 240, 100),
)


def in_steps(*names: str) -> Timeline:
    """Return a timeline with steps of these names, each 100 nanoseconds long."""
    windows = tuple(Window(name, 100 * n, 100 * n + 100) for n, name in enumerate(names))
    return Timeline("torch", SPANS, annotations=windows)


@pytest.mark.parametrize(
    "names", [("ProfilerStep#7", "ProfilerStep#8"), ("epoch 1, step 7", "epoch 1, step 8")]
)
def test_an_operation_belongs_to_the_step_that_launched_it(names: tuple[str, str]) -> None:
    timeline = in_steps(*names)
    first, second = (only_step(timeline, numbered_step(timeline, number)) for number in (7, 8))
    assert [span.name for span in first.spans] == ["launch", "late"]
    assert [span.name for span in second.spans] == ["unlinked", "second"]
    assert [mark.name for mark in (*first.annotations, *second.annotations)] == [*names]
    # From when the device had done the step before.
    assert (second.start, second.end) == (180, 240)


@pytest.mark.parametrize("behind", [0, 1, 2, 5])
def test_a_device_that_is_behind_does_not_wait_in_a_step_that_is_cut_out(behind: int) -> None:
    # Each step launches 5 ms of work, and the device begins it some steps later.
    spans, windows = [], []
    for number in range(12):
        launch, next_launch = 5 * number * MS, 5 * (number + 1) * MS
        start = next_launch + 5 * behind * MS
        spans.append(Span("gemm", "compute", GPU, "stream 7", start, start + 5 * MS, launch))
        windows.append(Window(f"ProfilerStep#{number}", launch, next_launch))
    timeline = Timeline("torch", spans, annotations=tuple(windows))
    case = only_step(timeline, numbered_step(timeline, 6))
    figures = steps_of(case)
    (step,) = figures.steps
    assert step.operations == 1
    assert case.seconds == step.seconds == step.parts.compute_seconds == 0.005
    assert figures.account is not None


RECORDED = ("linked/ddp", "not_hidden/no_no_sync", "held_out/statistics_beside")


@pytest.mark.parametrize("name", RECORDED)
def test_a_step_that_is_cut_out_is_the_one_of_all_steps(name: str) -> None:
    path = TRACES / f"{name}.json.gz"
    case = figures_of(path)
    assert case.steps is not None
    for step in case.steps.steps:
        number = int(step.name.rpartition("#")[2])
        (cut,) = read_ranks([path], step=number).values()
        (of_step,) = cut.figures
        assert of_step.parts == step.parts
        assert of_step.steps is not None
        assert of_step.steps.steps[0].seconds == step.seconds


def test_a_side_queue_that_fetches_the_next_step_s_data_does_not_begin_it() -> None:
    spans, windows = [], []
    for number in range(5):
        start = 100 * number
        spans.append(Span("gemm", "compute", GPU, "stream 7", start, start + 100, start))
        windows.append(Window(f"ProfilerStep#{number}", start - 75, start + 25))
    # Each step fetches at its beginning, sooner or later, while the device computes the one before.
    for number, ahead in enumerate((60, 20, 60, 20), 1):
        start = 100 * number
        spans.append(Span("fetch", "copy", GPU, "stream 9", start - ahead, start - 10, start - 70))
    timeline = Timeline("torch", sorted_by_start(spans), annotations=tuple(windows))

    (case,) = cases_of(timeline)

    inner_steps = steps_of(case).steps[1:4]
    assert [step.parts.seconds * 1e9 for step in inner_steps] == pytest.approx([100, 100, 100])


@pytest.mark.parametrize("names", [(), ("forward",) * 2, ("gloo:all_reduce",) * 2])
def test_annotations_without_numbers_are_no_steps_to_choose_from(names: tuple[str, ...]) -> None:
    with pytest.raises(RequestError, match="no steps with numbers"):
        numbered_step(in_steps(*names), 3)


def test_a_host_that_runs_ahead_makes_no_step_unlike_the_others(tmp_path: Path) -> None:
    # The host takes a millisecond for each of its first four steps, and then waits for the device.
    trace = MadeUpTrace()
    start = 0.0
    for number in range(12):
        host_time = 1000 if number < 4 else 10_000
        trace.step(number, start, host_time)
        launch = trace.call("cudaLaunchKernel", start + 10)
        trace.kernel("gemm", 100 + 10_000 * number, 9990, launch)
        start += host_time
    steps = trace.figures(tmp_path).steps
    assert steps is not None
    assert steps.outliers == ()
