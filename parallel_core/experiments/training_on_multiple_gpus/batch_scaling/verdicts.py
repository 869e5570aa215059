"""What the numbers of the `batch-scaling` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping
from dataclasses import replace

from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED, SCALED, counted_devices
from parallel_core.measurement.checks import differ_beyond_noise
from parallel_core.measurement.result import Case

__all__ = ["Timed", "about_efficiency", "divided", "verdict"]

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
    ratio = fixed.median / scaled.median
    compared = (
        f"On {counted_devices(count)}, batches of {count * batch_size} instead of {batch_size} images trained "
        f"{ratio:.2f} × as fast ({1 / scaled.median:,.0f} images/s instead of {1 / fixed.median:,.0f})"
    )
    if not differ_beyond_noise(fixed, scaled):
        return f"{compared}: no difference beyond the noise."
    if ratio > 1:
        share = 1 - 1 / ratio
        return f"{compared}: the larger batch made devices worth more; {share:.0%} of an image's time was saved."
    return f"{compared}: the larger batch made devices worth less, against the prediction."


def about_efficiency(timed: Timed, most: float) -> str:
    """Say how much of k devices' worth was reached with either batch; `most` is what shared cores leave of it."""
    count = max(timed[FIXED])
    one = timed[FIXED][1]
    efficiencies = [_about_kind(kind, one, cases[count], count) for kind, cases in timed.items()]
    sentence = f"The efficiency of {counted_devices(count)} was {' and '.join(efficiencies)}"
    if most < 1:
        sentence += f"; they share cores, which leaves {most:.2f} at most if one device keeps its core busy"
    return f"{sentence}."


def _about_kind(kind: str, one: Case, case: Case, count: int) -> str:
    """Write one kind's efficiency, and say if it is that of turns or of full value, within the noise."""
    efficiency = one.median / case.median / count
    as_one, in_full = not differ_beyond_noise(one, case), not differ_beyond_noise(divided(one, count), case)
    if as_one and in_full:
        meaning = "the noise leaves open whether they count"
    elif as_one:
        meaning = "no faster than one device"
    elif in_full:
        meaning = "each counted in full"
    else:
        meaning = f"{count * efficiency:.2f} devices' worth"
    return f"{efficiency:.2f} with the {kind} ({meaning})"
