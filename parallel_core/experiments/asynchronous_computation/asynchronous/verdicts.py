"""What the numbers of the `async` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping

from humanize import metric, naturalsize

from backends import Backend
from parallel_core.experiments.asynchronous_computation.asynchronous.queue_depth import WAIT_EVERY
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.changes import LESS_NOISE, with_queue, without_queue
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.verdicts import in_percent
from parallel_core.system.formatting import percent

__all__ = [
    "about_barriers",
    "about_launch",
    "about_memory",
    "about_model",
    "about_sides",
    "about_the_rest",
    "answer",
    "verdict",
]

EARLY, LATE = 0.2, 0.8
"""If control returns before this share of the time the work is queued, and after that one it is not."""
LITTLE = 5e-7
"""Seconds that a call may cost more without being worth a figure."""


def verdict(dispatched: Interval, async_speedup: Interval) -> str:
    """Say in one sentence whether the engine is asynchronous."""
    openings = {
        0: "Python ran ahead",
        1: "Python ran ahead in part",
        2: "Nothing was queued",
        None: "The noise leaves open how far Python ran ahead",
    }
    opening = openings[decide(dispatched, EARLY, LATE)]
    return (
        f"{opening}: control returned after {in_percent(dispatched)} of the products' time, and waiting once instead "
        f"of after each step was {with_bounds(async_speedup)} × as fast."
    )


def answer(backend: Backend, intervals: Mapping[str, Interval], model: CostModel, size: int) -> Answer:
    """Answer what waiting waits for and what an operation costs, and say what would change when control returns."""
    dispatched = intervals["dispatch_fraction"]
    return Answer(
        (about_barriers(intervals["wait_fraction"]), about_sides(model)), _what_would_change(backend, dispatched, size)
    )


def _what_would_change(backend: Backend, dispatched: Interval, size: int) -> str:
    """Say what would let control return later, if the products are queued, or earlier."""
    place = decide(dispatched, EARLY, LATE)
    if place is None:
        return LESS_NOISE
    if backend.engine == "sync":
        return with_queue(backend, "control should return long before the products are done")
    if place == 0:
        return without_queue("control should return when the products are done, after about 100% of their time")
    return f"Larger products (--size {2 * size}): computing them takes longer, and launching them does not."


def about_the_rest(
    metrics: Mapping[str, float], intervals: Mapping[str, Interval], steps: int, scheduler: str
) -> tuple[str, ...]:
    """Say what else was measured: who schedules, how good the model is, what a call and a deep queue cost."""
    sentences = (
        f"Scheduler: {scheduler}.",
        about_model(metrics, steps),
        about_launch(intervals["launch_cost_seconds"]),
        about_memory(metrics),
    )
    return tuple(sentence for sentence in sentences if sentence)


def about_barriers(fraction: Interval) -> str:
    """Say whether waiting for one result left others to be computed."""
    told = f"Waiting for one result took {in_percent(fraction)} of waiting for all"
    match decide(fraction, LATE):
        case 0:
            return f"{told}: the rest went on meanwhile."
        case 1:
            return f"{told}: nothing went on meanwhile."
    return f"{told}: the noise leaves open whether the rest went on meanwhile."


def about_sides(model: CostModel) -> str:
    """Say what an increment costs, and which side is the slower one."""
    t1, t2 = model.t1, model.t2
    if t2 < 0.02 * t1:
        return f"An increment takes {metric(t1, 's')} until control returns, which contains computing it."
    meanings = {
        0: "Python is the slower side, against the book's assumption",
        1: "the device is the slower side, as the book assumes",
        None: "the noise leaves open which side is the slower one",
    }
    return (
        f"An increment takes t1 = {metric(t1, 's')} to issue and t2 = {metric(t2, 's')} to compute: "
        f"{meanings[model.slower_side]}."
    )


def about_model(metrics: Mapping[str, float], steps: int) -> str:
    """Hold the cost model against the measured time."""
    measured, predicted = metrics["measured_once_seconds"], metrics["predicted_once_seconds"]
    return (
        f"The cost model predicts {metric(predicted, 's')} for {steps} increments, "
        f"{metric(measured, 's')} were measured ({percent(predicted / measured - 1, '+')}); the book's formula gives "
        f"{metric(metrics['book_predicted_once_seconds'], 's')}."
    )


def about_launch(cost: Interval) -> str:
    """Say what the backend's `launch` costs beside the framework's own call."""
    told = "Launching through the backend costs {} a call over the framework's own."
    if decide(cost, LITTLE) == 0:
        return told.format("less than 0.5 μs")
    if decide(cost, 0.0) == 1:
        return told.format(f"{metric(cost.estimate, 's')} ({metric(cost.low, 's')} … {metric(cost.high, 's')})")
    return (
        f"What launching through the backend costs is lost in the noise: {metric(max(0, cost.estimate), 's')} a call."
    )


def about_memory(metrics: Mapping[str, float]) -> str:
    """Say whether results that nobody keeps pile up in a deep queue; empty if memory was not measured."""
    deepest = WAIT_EVERY[-1]
    kept, dropped = (metrics.get(f"peak_bytes_{what}_waiting_every_{deepest}") for what in ("kept", "dropped"))
    if kept is None or dropped is None:
        return ""
    meaning = "costs little memory" if dropped < 0.25 * kept else "costs memory"
    return (
        f"A queue {deepest} deep {meaning} when its results are dropped ({naturalsize(dropped)}); kept ones take "
        f"{naturalsize(kept)}."
    )
