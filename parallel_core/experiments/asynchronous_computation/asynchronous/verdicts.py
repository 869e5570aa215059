"""What the numbers of the `async` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping

from humanize import metric, naturalsize

from parallel_core.experiments.asynchronous_computation.asynchronous.queue_depth import WAIT_EVERY
from parallel_core.system.formatting import percent

__all__ = ["about_barriers", "about_launch", "about_memory", "about_model", "answer_questions", "verdict"]


def verdict(dispatch_fraction: float, async_speedup: float) -> str:
    """Say in one sentence whether the engine is asynchronous."""
    if dispatch_fraction > 0.8:
        return (
            f"Nothing was queued: control returned when the work was done ({dispatch_fraction:.0%} of its time), and "
            f"waiting after each step took {async_speedup:.1f} × as long as waiting once."
        )
    how = "Python ran ahead" if dispatch_fraction < 0.2 else "Python ran ahead in part"
    return (
        f"{how}: control returned after {dispatch_fraction:.2%} of the products' time, and waiting once instead of "
        f"after each step was {async_speedup:.1f} × as fast."
    )


def answer_questions(metrics: Mapping[str, float], steps: int, scheduler: str) -> tuple[str, ...]:
    """Answer the experiment's questions: who schedules, what waiting waits for, the model, calls, memory."""
    sentences = (
        f"Scheduler: {scheduler}.",
        about_barriers(metrics["wait_fraction"]),
        about_model(metrics, steps),
        about_launch(metrics["launch_cost_seconds"]),
        about_memory(metrics),
    )
    return tuple(sentence for sentence in sentences if sentence)


def about_barriers(fraction: float) -> str:
    """Say whether waiting for one result left others to be computed."""
    if fraction < 0.8:
        return f"Waiting for one result took {fraction:.0%} of waiting for all: the rest went on meanwhile."
    return f"Waiting for one result took as long as waiting for all ({fraction:.0%}): nothing went on meanwhile."


def about_model(metrics: Mapping[str, float], steps: int) -> str:
    """Hold the cost model against the measured time."""
    t1, t2 = metrics["t1_seconds"], metrics["t2_seconds"]
    issue_and_compute = f"t1 = {metric(t1, 's')} to issue and t2 = {metric(t2, 's')} to compute"
    if t2 < 0.02 * t1:
        parts = f"an increment takes {metric(t1, 's')} until control returns, which contains computing it"
    elif steps * t2 > (steps - 1) * t1:
        parts = f"{issue_and_compute}: the device is the slower side, as the book assumes"
    else:
        parts = f"{issue_and_compute}: Python is the slower side, against the book's assumption"
    measured, predicted = metrics["measured_once_seconds"], metrics["predicted_once_seconds"]
    return (
        f"Cost model: {parts}. It predicts {metric(predicted, 's')} for {steps} increments, "
        f"{metric(measured, 's')} were measured ({percent(predicted / measured - 1, '+')}); the book's formula gives "
        f"{metric(metrics['book_predicted_once_seconds'], 's')}."
    )


def about_launch(cost: float) -> str:
    """Say what the backend's `launch` costs beside the framework's own call."""
    if cost < 5e-7:
        return "Launching through the backend costs less than 0.5 μs a call over the framework's own."
    return f"Launching through the backend costs {metric(cost, 's')} a call over the framework's own."


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
