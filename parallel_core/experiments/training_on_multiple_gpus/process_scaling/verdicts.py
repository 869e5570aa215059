"""What the times of steps on several processes mean, in sentences that claim no more than their intervals show."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from parallel_core.measurement.confidence_intervals import Interval, decide, exponential, with_bounds
from parallel_core.measurement.verdicts import over_rounds
from parallel_core.system.formatting import figure
from parallel_core.training.batches import Settings

__all__ = [
    "ALONE",
    "EXCHANGE",
    "SILENT",
    "TOGETHER",
    "Timed",
    "about_exchange",
    "about_speed",
    "intervals_of",
    "what_would_change",
]

TOGETHER, SILENT, ALONE, EXCHANGE = "together", "without exchange", "alone", "exchange alone"

Timed: TypeAlias = Mapping[str, Sequence[float]]
"""The seconds of a step in each of these ways, round by round; all were taken in turns."""


def intervals_of(timed: Timed, processes: int) -> dict[str, Interval]:
    """Return the figures of the training's scaling, each with its interval."""
    steps = {
        "step_seconds": timed[TOGETHER],
        "lone_step_seconds": timed[ALONE],
        "exchange_seconds": timed[EXCHANGE],
    }
    return {
        "scaling_efficiency": exponential(
            over_rounds(lambda alone, together: np.log(alone / (processes * together)), timed[ALONE], timed[TOGETHER])
        ),
        **{name: exponential(over_rounds(np.log, seconds)) for name, seconds in steps.items()},
        "exposed_exchange_seconds": over_rounds(
            lambda together, silent: together - silent, timed[TOGETHER], timed[SILENT]
        ),
    }


def about_speed(intervals: Mapping[str, Interval], processes: int) -> str:
    """Say whether a step on all processes is shown to be faster than on one, and how much of them was gained."""
    efficiency = intervals["scaling_efficiency"]
    speedup = Interval(*(processes * bound for bound in (efficiency.estimate, efficiency.low, efficiency.high)))
    meanings = {
        0: "a single process is faster",
        1: "they are worth more than one",
        None: "that they are worth more than one is not shown",
    }
    return (
        f"A step took {_milliseconds(intervals['step_seconds'])} on {processes} processes and "
        f"{_milliseconds(intervals['lone_step_seconds'])} on one, which is {with_bounds(speedup)} × as fast of "
        f"{processes} × at most: {meanings[decide(speedup, 1.0)]}."
    )


def about_exchange(timed: Timed, intervals: Mapping[str, Interval], size: int) -> str:
    """Say how long the exchange of gradients of `size` bytes takes, and how much of it a step is shown to wait for."""
    share = over_rounds(
        lambda together, silent, exchange: (together - silent) / exchange,
        timed[TOGETHER],
        timed[SILENT],
        timed[EXCHANGE],
    )
    exposed = intervals["exposed_exchange_seconds"]
    told = (
        f"Exchanging {figure(size / 1e6)} MB took {_milliseconds(intervals['exchange_seconds'])} by itself, and the "
        f"step {_milliseconds(exposed)} more than without it"
    )
    match decide(share, 0.0, 1.0):
        case 0:
            return f"{told}: it was the faster one, so the exchange is not what takes long."
        case 1:
            return f"{told}: a part of the exchange hides under computing."
        case 2:
            return f"{told}: besides the exchange, processes wait for each other."
    return f"{told}: {'the step waits for it' if decide(exposed, 0.0) == 1 else 'no difference is shown'}."


def what_would_change(intervals: Mapping[str, Interval], settings: Settings, hosts: int) -> str:
    """Say what would make processes worth more."""
    larger = f"a larger batch (--batch-size {4 * settings.batch_size}), beside which the exchange weighs less"
    if decide(intervals["exposed_exchange_seconds"], 0.0) == 1 and settings.exchange == "after":
        return f"Sums of gradients during the backward pass (--exchange during), or {larger}."
    if hosts == 1:
        return f"Hosts of their own for the processes (launch --hosts), or {larger}."
    return f"A faster network (launch --interface), or {larger}."


def _milliseconds(seconds: Interval) -> str:
    return f"{with_bounds(Interval(*(1e3 * bound for bound in (seconds.estimate, seconds.low, seconds.high))))} ms"
