"""What the numbers of the `batch-scaling` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping
from dataclasses import replace

from backends import Backend
from parallel_core.experiments.changes import LESS_NOISE, more_cores, with_queue
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED, SCALED, counted_devices
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import times_as_long

__all__ = ["Timed", "about_cores", "about_efficiency", "divided", "efficiency", "verdict", "what_would_change"]

Timed = Mapping[str, Mapping[int, Case]]
"""The times of an image, by the kind of batch and the number of devices."""


def divided(case: Case, parts: int) -> Case:
    """Return the case of one of so many equal parts: batches of unlike sizes are compared by an image of each."""
    return replace(
        case,
        seconds=tuple(seconds / parts for seconds in case.seconds),
        dispatch_seconds=tuple(seconds / parts for seconds in case.dispatch_seconds),
        bare_seconds=tuple(seconds / parts for seconds in case.bare_seconds),
    )


def verdict(timed: Timed, batch_size: int) -> str:
    """Say whether all devices were worth more with the larger batch, and by how much."""
    count = max(timed[FIXED])
    fixed, scaled = timed[FIXED][count], timed[SCALED][count]
    ratio = times_as_long(fixed, scaled)
    compared = (
        f"On {counted_devices(count)}, batches of {count * batch_size} instead of {batch_size} images trained "
        f"{with_bounds(ratio)} × as fast ({1 / scaled.median:,.0f} images/s instead of {1 / fixed.median:,.0f})"
    )
    match decide(ratio, 1.0):
        case 0:
            return f"{compared}: the larger batch made devices worth less, against the prediction."
        case 1:
            return f"{compared}: the larger batch made devices worth more."
    return f"{compared}: no difference is shown."


def efficiency(timed: Timed, kind: str) -> Interval:
    """Return the speed of all devices over as many times that of one, with one kind of batch."""
    count = max(timed[kind])
    return times_as_long(divided(timed[FIXED][1], count), timed[kind][count])


def about_efficiency(timed: Timed) -> str:
    """Say how much of k devices' worth was reached with either batch."""
    count = max(timed[FIXED])
    efficiencies = [_about_kind(kind, efficiency(timed, kind), count) for kind in timed]
    return f"The efficiency of {counted_devices(count)} was {' and '.join(efficiencies)}."


def about_cores(most: float) -> tuple[str, ...]:
    """Say what shared cores leave of the efficiency at most, if they do."""
    if most >= 1:
        return ()
    return (f"Devices share cores here, which leaves an efficiency of {most:.2f} if one keeps its core busy.",)


def what_would_change(backend: Backend, timed: Timed, batch_size: int) -> str:
    """Say what would make the larger batch worth more to the devices, or less."""
    if backend.engine == "sync":
        return with_queue(backend, "the devices should work at the same time, and each count for more")
    count = max(timed[FIXED])
    place = decide(times_as_long(timed[FIXED][count], timed[SCALED][count]), 1.0)
    if place is None:
        return LESS_NOISE
    if place == 0:
        smaller = max(1, batch_size // 4)
        return (
            more_cores(backend) or f"Smaller batches (--batch-size {smaller}), whose launches and exchange weigh more."
        )
    return (
        f"Larger batches (--batch-size {4 * batch_size}), beside which launches and exchange weigh less with either "
        "kind; `run learning-rates` shows what larger batches cost in accuracy."
    )


def _about_kind(kind: str, found: Interval, count: int) -> str:
    """Write one kind's efficiency, and say what of turns and of full value it shows."""
    places = {0: "less than one device", 1: "more than one device, and not each in full", 2: "each in full, and more"}
    place = decide(found, 1 / count, 1.0)
    if place is None and decide(found, 1 / count) == 1:
        meaning = "each may count in full"
    elif place is None and decide(found, 1.0) == 0:
        meaning = "perhaps no more than one device"
    else:
        meaning = "the noise leaves open whether they count" if place is None else places[place]
    return f"{with_bounds(found)} with the {kind} ({meaning})"
