"""What is counted of a training's steps: computations at the same time, and early exchanges."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, SpanKind
from parallel_core.experiments.training_on_multiple_gpus.step_counts import (
    steps_on_several_devices,
    steps_with_early_exchange,
)
from tests.parallel_core.experiments.runner.test_counts import repetition, stretched

UPDATE = "launch sgd_while_finite"


def run(
    name: str,
    device: str,
    start: int,
    end: int,
    kind: SpanKind = "compute",
    launched: int | None = None,
) -> Span:
    """Return an operation on a device."""
    return Span(name, kind, device, "compute", start, end, launched)


def step(start: int, second_delay: int, exchange_delay: int) -> Sequence[Span]:
    """Return a step of 30 units on two devices.

    The delays count from the step's start: that of the second device's computation, and that of the
    exchange of a gradient.
    """
    second_start = start + second_delay
    exchange_start = start + exchange_delay
    return [
        Span(UPDATE, "host", "host", "Python", start + 1, start + 2),
        Span(UPDATE, "host", "host", "Python", start + 3, start + 4),
        run("conv2d", "cpu:1", start + 4, start + 7),
        run("conv2d", "cpu:2", second_start + 4, second_start + 7),
        run("conv2d backward", "cpu:1", start + 7, start + 12),
        run("conv2d backward", "cpu:2", second_start + 7, second_start + 12),
        run("add", "cpu:1", exchange_start, exchange_start + 1, "exchange"),
        # The last operations of both updates.
        run("reshape", "cpu:1", start + 28, start + 29, launched=start + 1),
        run("reshape", "cpu:2", start + 28, start + 29, launched=start + 3),
    ]


@given(factor=st.integers(1, 10**9))
def test_steps_are_counted_by_order_however_long_they_take(factor: int) -> None:
    both_early = step(0, second_delay=1, exchange_delay=9)
    in_turn = step(30, second_delay=12, exchange_delay=27)
    late_exchange = step(60, second_delay=2, exchange_delay=16)
    mixed = stretched([*both_early, *in_turn, *late_exchange], factor)
    # Updates run at the same time in each step, but take a small part of it.
    assert steps_on_several_devices(mixed) == (2, 3)
    assert steps_with_early_exchange(mixed) == (1, 3)
    # The first step may be the one in turn.
    both_steps = stretched([*step(0, 12, 9), *step(30, 1, 27)], factor)
    assert steps_on_several_devices(both_steps) == (1, 2)


def test_what_runs_on_one_thread_is_in_turn() -> None:
    spans = step(0, second_delay=12, exchange_delay=26)
    calls = [span for span in spans if span.kind == "host"]
    *operations, first_update, second_update = [
        span._replace(device="cpu") for span in spans if span.kind != "host"
    ]
    # On one thread the first update ends before the second one begins.
    first_update = first_update._replace(end=second_update.start)
    alone = repetition(*calls, *operations, first_update, second_update)
    assert steps_on_several_devices(alone) == (0, 1)
    assert steps_with_early_exchange(alone) == (0, 1)


def test_without_known_updates_no_step_is_counted() -> None:
    unknown = [span._replace(launched=None) for span in step(0, 1, 9)]
    assert steps_on_several_devices(repetition(*unknown)).of == 0


def test_exchanges_of_a_compiled_step_are_not_counted() -> None:
    compiled = [
        span if span.kind == "host" else span._replace(name="value_and_gradients")
        for span in step(0, 1, 9)
    ]
    assert steps_on_several_devices(repetition(*compiled)) == (1, 1)
    assert steps_with_early_exchange(repetition(*compiled)).of == 0
