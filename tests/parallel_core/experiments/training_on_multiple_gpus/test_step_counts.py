"""What is counted of a training's steps: computations at the same time, and early exchanges."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, SpanKind
from parallel_core.experiments.runner.tallies import Repetition, repetition_of
from parallel_core.experiments.training_on_multiple_gpus.step_counts import (
    steps_on_several_devices,
    steps_with_early_exchange,
)

UPDATE = "launch sgd_while_finite"


def run(
    name: str, device: str, start: int, end: int, kind: SpanKind = "compute", at: int | None = None
) -> Span:
    return Span(name, kind, device, "compute", start, end, at)


def step(start: int, second: int, exchanged: int) -> Sequence[Span]:
    """Return a step of 30 units; the second device computes, and a gradient is exchanged, when it
    is said.
    """
    calls = [Span(UPDATE, "host", "host", "Python", start + at, start + at + 1) for at in (1, 3)]
    devices = {"cpu:1": start, "cpu:2": start + second}
    return [
        *calls,
        *(run("conv2d", device, at + 4, at + 7) for device, at in devices.items()),
        *(run("conv2d backward", device, at + 7, at + 12) for device, at in devices.items()),
        run("add", "cpu:1", start + exchanged, start + exchanged + 1, "exchange"),
        run("reshape", "cpu:1", start + 28, start + 29, at=start + 1),
        run("reshape", "cpu:2", start + 28, start + 29, at=start + 3),
    ]


def repetition(steps: Sequence[Sequence[Span]], factor: int = 1) -> Repetition:
    spans = sorted((span for spans in steps for span in spans), key=lambda span: span.start)
    stretched = [
        span._replace(
            start=span.start * factor,
            end=span.end * factor,
            launched=None if span.launched is None else span.launched * factor,
        )
        for span in spans
    ]
    return repetition_of(stretched)


@given(st.integers(1, 10**9))
def test_steps_are_counted_by_order_however_long_they_take(factor: int) -> None:
    mixed = repetition([step(0, 1, 9), step(30, 12, 27), step(60, 2, 16)], factor)
    # Updates run at the same time too: of the step that they begin.
    assert steps_on_several_devices(mixed) == (3, 3)
    assert steps_with_early_exchange(mixed) == (1, 3)
    first_in_turn = repetition([step(0, 12, 9), step(30, 1, 27)], factor)
    assert steps_on_several_devices(first_in_turn) == (1, 2)


def test_what_runs_on_one_thread_is_in_turn() -> None:
    spans = [span._replace(device="cpu") for span in step(0, 12, 26) if span.kind != "host"]
    calls = [span for span in step(0, 12, 26) if span.kind == "host"]
    alone = repetition([[*calls, *spans[:-2], spans[-2]._replace(end=28), spans[-1]]])
    assert steps_on_several_devices(alone) == (0, 1)
    assert steps_with_early_exchange(alone) == (0, 1)


def test_without_known_updates_nothing_is_counted() -> None:
    unknown = [span._replace(launched=None) for span in step(0, 1, 9)]
    assert steps_on_several_devices(repetition([unknown])).of == 0
    compiled = [span._replace(name="value_and_gradients") for span in step(0, 1, 9)]
    calls = [span._replace(name=UPDATE) if span.kind == "host" else span for span in compiled]
    assert steps_on_several_devices(repetition([calls])) == (1, 1)
    assert steps_with_early_exchange(repetition([calls])).of == 0
