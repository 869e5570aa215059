"""What the numbers of the `learning-rates` experiment mean, in sentences that follow from them."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from parallel_core.experiments.training_on_multiple_gpus.learning_rates.noise import CHANCE
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import counted_devices
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT, Interval, decide
from parallel_core.system.formatting import figure, listed

__all__ = [
    "about_fixed",
    "about_rule",
    "about_scaling",
    "about_seeds",
    "best_rate",
    "best_rates",
    "ranges",
    "ratio_of_ranges",
    "verdict",
    "what_would_change",
]

Curve = Mapping[float, float]
"""Accuracies by learning rate."""


def best_rate(curve: Curve) -> float:
    """Return the rate of the highest accuracy, the lowest one of equals."""
    return max(sorted(curve), key=lambda rate: curve[rate])


def best_rates(curve: Curve, noise: float) -> tuple[float, ...]:
    """Return the rates that are not shown to be worse than the one of the highest accuracy, that one among them."""
    best = best_rate(curve)
    return tuple(rate for rate in sorted(curve) if rate == best or not _is_lower(curve[rate] - curve[best], noise))


def ranges(curves: Mapping[str, Curve], noise: float) -> dict[str, float]:
    """Return the lowest and the highest of the best rates, as metrics."""
    best = {name: best_rates(curve, noise) for name, curve in curves.items()}
    return {
        f"{which}_best_rate_{name}": of(rates)
        for name, rates in best.items()
        for which, of in (("lowest", min), ("highest", max))
    }


def ratio_of_ranges(one: Curve, scaled: Curve, noise: float) -> Interval:
    """Return the scaled batch's best rate over one device's, with the ratios that all their best rates allow."""
    before, after = best_rates(one, noise), best_rates(scaled, noise)
    return Interval(best_rate(scaled) / best_rate(one), min(after) / max(before), max(after) / min(before))


def verdict(one: Curve, scaled: Mapping[int, Curve], noise: float) -> str:
    """Say which rates were best on one device and with the largest batch."""
    count = max(scaled)
    curve = scaled[count]
    if max(*one.values(), *curve.values()) < CHANCE:
        return (
            "Every rate ended at chance, which says nothing about rates: train for longer (--limit, --epochs), or from "
            "larger weights (--initial-scale)."
        )
    before, after = best_rates(one, noise), best_rates(curve, noise)
    several = len(before) + len(after) > 2
    alike = "of several none is shown to be worse, for the" if several else "all others are worse by more than the"
    return (
        f"The best rates were {_best(one, before)} on 1 device and {_best(curve, after)} on {counted_devices(count)} "
        f"with {count} × the batch; {alike} noise over seeds{f' is {noise:.3f}' if several else f', {noise:.3f}'}."
    )


def about_scaling(one: Curve, scaled: Mapping[int, Curve], noise: float) -> str:
    """Say whether linear scaling foretold the best rates with the largest batch."""
    count = max(scaled)
    curve = scaled[count]
    before, after = best_rates(one, noise), best_rates(curve, noise)
    if max(*one.values(), *curve.values()) < CHANCE:
        return (
            f"Linear scaling foretells {_rates([count * best_rate(one)])}, and the network learnt with neither batch."
        )
    # The rule is right if it leads from any of the best rates to one of the best.
    foretold = {rate: found for rate in before if (found := _nearest(count * rate, curve)) is not None}
    if not foretold:
        return f"Linear scaling foretells {_rates([count * rate for rate in before])}, which was not tried."
    right = [rate for rate in foretold.values() if rate in after]
    foretells = f"Linear scaling foretells {_rates(sorted(foretold.values()))}"
    if len(right) == len(foretold):
        return f"{foretells}, and that was as good as any."
    if right:
        return f"{foretells}, of which {_rates(right)} {'was' if len(right) == 1 else 'were'} as good as any."
    nearest = max(foretold.values(), key=lambda rate: curve[rate])
    if curve[nearest] < CHANCE:
        return f"{foretells}, and there the network guessed: it does not bear a rate that large."
    return f"{foretells}, and that was worse than the best by {max(curve.values()) - curve[nearest]:.3f}."


def about_fixed(
    one: Curve, fixed: Mapping[int, Curve], loss_difference: float, noise_at: Callable[[float], float]
) -> str:
    """Say whether the number of devices changed anything as long as the batch stayed the same."""
    differences = [(abs(curve[rate] - one[rate]), rate) for curve in fixed.values() for rate in one]
    difference, rate = max(differences)
    losses = f"the first losses differ by {loss_difference:.0e} of their size at most"
    if not loss_difference < 1e-4:
        return f"With the same batch {losses}, and they should not."
    beyond = [(found, at) for found, at in differences if _is_lower(-found, noise_at(at))]
    if not beyond:
        return (
            f"With the same batch the number of devices changed nothing beyond the noise over seeds: {losses}, the "
            f"accuracies by {difference:.3f}, at {figure(rate)}, where the noise is {noise_at(rate):.3f}."
        )
    difference, rate = max(beyond)
    return (
        f"With the same batch {losses}, and yet the accuracies by up to {difference:.3f}, at {figure(rate)}, where the "
        f"noise over seeds is {noise_at(rate):.3f}: rounding errors may grow from step to step."
    )


def about_seeds(rounds: int, steps: int) -> str:
    """Say how many trainings a point is of, and how long they were."""
    length = f"{steps} batches of one device"
    if rounds < FEWEST_FOR_A_VERDICT:
        return f"Each point is of {_seeds(rounds)}, too few for their noise (--rounds), and of {length}."
    return f"Each point is the mean over {_seeds(rounds)}, in trainings of {length} (--budget gives more)."


def what_would_change(one: Curve, scaled: Curve, noise: float, rounds: int, steps: int) -> str:
    """Say what would make the sets of best rates smaller, or others."""
    longer = (
        f"longer trainings (--limit {2 * steps}), with which smaller rates catch up and the best ones may be others"
    )
    if max(*one.values(), *scaled.values()) < CHANCE:
        return f"L{longer[1:].partition(',')[0]}, or larger initial weights (--initial-scale): nothing was learnt here."
    sets = (best_rates(one, noise), best_rates(scaled, noise))
    if rounds < FEWEST_FOR_A_VERDICT or max(map(len, sets)) > 1:
        return f"More seeds (--rounds {2 * rounds}), which leave fewer rates within the noise; and {longer}."
    return f"L{longer[1:]}; and rates between those that were tried (--rates)."


def about_rule(one: Curve, scaled: Curve, count: int, noise: float) -> str:
    """Hold the linear scaling rule against keeping the rate, for all rates whose `count`-fold was tried too."""
    pairs = {rate: tried for rate in one if one[rate] >= CHANCE and (tried := _nearest(count * rate, scaled))}
    larger = f"With {count} × the batch"
    if not pairs:
        return f"{larger} the rule could not be tried: no rate is {count} × another one at which one device learnt."
    gains = {rate: scaled[tried] - scaled[rate] for rate, tried in pairs.items()}
    better = [rate for rate in pairs if _is_lower(-gains[rate], noise)]
    worse = [rate for rate in pairs if _is_lower(gains[rate], noise)]
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


def _is_lower(difference: float, noise: float) -> bool:
    """Return whether a difference of accuracies is shown to be negative."""
    return decide(Interval(difference, difference - noise, difference + noise), 0.0) == 0


def _best(curve: Curve, rates: Sequence[float]) -> str:
    """Write the best rates, several neighbours by the first and the last one, with the highest accuracy."""
    tried = sorted(curve)
    first = tried.index(rates[0])
    neighbours = len(rates) > 2 and tuple(tried[first : first + len(rates)]) == tuple(rates)
    written = f"{figure(rates[0])} to {figure(rates[-1])}" if neighbours else _rates(rates)
    return f"{written} (accuracy up to {max(curve.values()):.3f})"


def _rates(values: Sequence[float]) -> str:
    return listed([figure(rate) for rate in values])


def _nearest(rate: float, curve: Curve) -> float | None:
    """Return the rate of the curve that is this one, up to rounding; None if there is none."""
    return next((tried for tried in curve if abs(tried - rate) < 1e-6 * rate), None)


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
