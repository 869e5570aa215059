"""What the numbers of the `learning-rates` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import counted_devices
from parallel_core.system.formatting import figure, listed

__all__ = ["CHANCE", "about_fixed", "about_rule", "best_rate", "noise_of", "verdict"]

CHANCE = 0.2
"""An accuracy below this is guessing among ten classes, or hardly better."""
MIN_NOISE = 0.01

Curve = Mapping[float, float]
"""Accuracies by learning rate."""


def best_rate(curve: Curve) -> float:
    """Return the rate of the highest accuracy, the lowest one of equals."""
    return max(sorted(curve), key=lambda rate: curve[rate])


def noise_of(accuracies: Sequence[Sequence[float]], images: int) -> float:
    """Return what two mean accuracies must differ by to count as different; `accuracies` are of each point's rounds.

    Twice the standard error of a difference. A round's seed is the same at all points, so what it does to all of them
    alike is no noise; the variance that is left is of the points at which no round guessed. Where it cannot be found,
    there is only that of counting so many test images.
    """
    count = len(accuracies[0])
    learnt = [rounds for rounds in accuracies if min(rounds) >= CHANCE]
    variance = 0.25 / images
    if count > 1 and len(learnt) > 1:
        grand = fmean(map(fmean, learnt))
        of_round = [fmean(column) - grand for column in zip(*learnt, strict=True)]
        left = [x - fmean(rounds) - shift for rounds in learnt for x, shift in zip(rounds, of_round, strict=True)]
        variance = sum(x**2 for x in left) / ((len(learnt) - 1) * (count - 1))
    return max(MIN_NOISE, 2 * (2 * variance / count) ** 0.5)


def verdict(one: Curve, scaled: Mapping[int, Curve], noise: float) -> str:
    """Say which rates were best on one device and with the largest batch, and whether the rule foretold it."""
    count = max(scaled)
    curve = scaled[count]
    if max(*one.values(), *curve.values()) < CHANCE:
        return (
            "Every rate ended at chance, which says nothing about rates: train for longer (--limit, --epochs), or from "
            "larger weights (--initial-scale)."
        )
    before, after = best_rate(one), best_rate(curve)
    sentence = (
        f"The best rate was {figure(before)} on 1 device (accuracy {one[before]:.3f}, {_equalled(one, noise)}) and "
        f"{figure(after)} on {counted_devices(count)} with {count} × the batch ({curve[after]:.3f}, "
        f"{_equalled(curve, noise)})"
    )
    foretold = _nearest(count * before, curve)
    if foretold is None:
        return f"{sentence}. Linear scaling foretells {figure(count * before)}, which was not tried."
    foretells = f"{sentence}. Linear scaling foretells {figure(foretold)}"
    if curve[foretold] >= curve[after] - noise:
        return f"{foretells}, and that was as good as any."
    if curve[foretold] < CHANCE:
        return f"{foretells}, and there the network guessed: it does not bear a rate that large."
    return f"{foretells}, and that was worse than the best by {curve[after] - curve[foretold]:.3f}."


def about_fixed(one: Curve, fixed: Mapping[int, Curve], loss_difference: float, noise: float) -> str:
    """Say whether the number of devices changed anything as long as the batch stayed the same."""
    difference, rate = max((abs(curve[rate] - one[rate]), rate) for curve in fixed.values() for rate in one)
    losses = f"the first losses differ by {loss_difference:.0e} of their size at most"
    if not loss_difference < 1e-4:
        return f"With the same batch {losses}, and they should not."
    if difference <= noise:
        return (
            f"With the same batch the number of devices changed nothing beyond the noise: {losses}, the accuracies by "
            f"{difference:.3f}."
        )
    return (
        f"With the same batch {losses}, and yet the accuracies by up to {difference:.3f}, at {figure(rate)}: rounding "
        "errors may grow from step to step."
    )


def about_rule(one: Curve, scaled: Curve, count: int, noise: float) -> str:
    """Hold the linear scaling rule against keeping the rate, for all rates whose `count`-fold was tried too."""
    pairs = {rate: tried for rate in one if one[rate] >= CHANCE and (tried := _nearest(count * rate, scaled))}
    larger = f"With {count} × the batch"
    if not pairs:
        return f"{larger} the rule could not be tried: no rate is {count} × another one at which one device learnt."
    gains = {rate: scaled[tried] - scaled[rate] for rate, tried in pairs.items()}
    better = [rate for rate in pairs if gains[rate] > noise]
    worse = [rate for rate in pairs if gains[rate] < -noise]
    changes = [
        f"{comparison} at {_rates(tried)} (by up to {max(abs(gains[rate]) for rate in tried):.3f})"
        for comparison, tried in (("better", better), ("worse", worse))
        if tried
    ]
    meaning = f"was {' and '.join(changes)} than keeping it" if changes else "made no difference beyond the noise"
    # Adding zero turns a negative zero, which rounding may give, into a plain one.
    kept = round(fmean(one[rate] - scaled[rate] for rate in pairs), 3) + 0.0
    followed = round(fmean(one[rate] - scaled[tried] for rate, tried in pairs.items()), 3) + 0.0
    return (
        f"{larger} and as many images, multiplying the rate by {count} {meaning}. The larger batch lost {figure(kept)} "
        f"of one device's accuracy at the same rate and {figure(followed)} at the scaled one, in the mean of "
        f"{len(pairs)} {'rate' if len(pairs) == 1 else 'rates'}."
    )


def _equalled(curve: Curve, noise: float) -> str:
    """Say which other rates are as good as the best one within the noise."""
    best = best_rate(curve)
    others = [rate for rate in sorted(curve) if rate != best and curve[rate] >= curve[best] - noise]
    return f"equalled within the noise by {_rates(others)}" if others else "equalled by no other"


def _rates(values: Sequence[float]) -> str:
    return listed([figure(rate) for rate in values])


def _nearest(rate: float, curve: Curve) -> float | None:
    """Return the rate of the curve that is this one, up to rounding; None if there is none."""
    return next((tried for tried in curve if abs(tried - rate) < 1e-6 * rate), None)
