"""Where the cost model's regimes meet, and what its numbers mean, in sentences that follow from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

import numpy as np
from humanize import metric

from backends import Backend
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.changes import LESS_NOISE, with_queue
from parallel_core.measurement.confidence_intervals import decide
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import over_rounds
from parallel_core.system.formatting import figure, listed, percent

__all__ = [
    "Point",
    "about_book",
    "about_floor",
    "about_overlap",
    "about_predictions",
    "crossing",
    "disturbance",
    "floor_left",
    "missed",
    "still_missed",
    "verdict",
    "what_would_change",
]

INSIDE = 0.02
"""A share of t1: if t2 is less at every size, the computing is done when control returns."""
ABOVE_FLOOR = 1.25
SHORTEST = 1e-12
"""Seconds: no prediction is shorter."""


@dataclass(frozen=True)
class Point:
    """What was measured and fitted at one size. The case's seconds are of one increment of `steps`."""

    elements: int
    steps: int
    model: CostModel
    case: Case

    @property
    def t2_over_t1(self) -> float:
        """How many times longer computing takes than issuing."""
        return self.model.t2 / self.model.t1

    @property
    def predicted(self) -> float:
        """Seconds per increment when the longer of t1 and t2 is repeated."""
        return self.model.waiting_once(self.steps) / self.steps

    @property
    def by_the_book(self) -> float:
        """Seconds per increment by the book's formula, which repeats t2."""
        return self.model.waiting_once_by_the_book(self.steps) / self.steps

    @property
    def prediction_error(self) -> float:
        """By what share the prediction is more than the measured time; negative if it is less."""
        return self.predicted / self.case.median - 1

    @property
    def is_python_slower(self) -> bool:
        """Whether issuing takes longer than computing, by the fit."""
        return self.t2_over_t1 <= 1

    def misses(self, disturbance: float = 0.0) -> bool:
        """Return whether the longer of t1 and t2, and so many seconds more, is shown to be wrong."""

        def predicted(t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
            longer = np.maximum(t1, t2)
            return longer + (t1 + t2 + self.model.t3 - longer) / self.steps + disturbance

        return self.against(predicted) is not None

    def against(self, predicted: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> int | None:
        """Return 1 if it took longer than a function of t1 and t2 predicts, 0 if it took less; None if that is open.

        The measured time is uncertain and so are t1 and t2, which were measured apart from it.
        """

        def ratio(measured: np.ndarray, t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
            return np.log(measured / np.maximum(predicted(t1, t2), SHORTEST))

        issued, computed = self.model.issued or (self.model.t1,) * 3, self.model.computed or (self.model.t2,) * 3
        return decide(over_rounds(ratio, self.case.seconds, issued, computed, paired=False), 0.0)


def _passes_one(sizes: Sequence[int], ratios: Sequence[float]) -> float | None:
    """Return the size from which on all ratios are above 1, interpolated between logarithms.

    None if all are above 1, or the last is not.
    """
    below = [index for index, ratio in enumerate(ratios) if ratio <= 1]
    if not below or below[-1] == len(ratios) - 1:
        return None
    last = below[-1]
    # A fit can give no time at all for what is done already.
    low, high = (log(max(ratio, 1e-9)) for ratio in ratios[last : last + 2])
    step = log(sizes[last + 1] / sizes[last])
    return sizes[last] * exp(step * -low / (high - low))


def crossing(points: Sequence[Point]) -> float | None:
    """Return the number of elements from which on computing takes longer than issuing; None without such a change."""
    ratios = [point.t2_over_t1 for point in points]
    return _passes_one([point.elements for point in points], ratios) if ratios[0] <= 1 else None


def floor_left(points: Sequence[Point]) -> float | None:
    """Return the number of elements at which the measured time is a quarter above its lowest; None if it is never."""
    floor = min(point.case.median for point in points)
    return _passes_one([p.elements for p in points], [p.case.median / floor / ABOVE_FLOOR for p in points])


def _is_inside(points: Sequence[Point]) -> bool:
    """Tell whether issuing contains computing, at every size."""
    return all(point.t2_over_t1 < INSIDE for point in points)


def verdict(points: Sequence[Point]) -> str:
    """Say where the book's assumption holds."""
    first, last = points[0], points[-1]
    if _is_inside(points):
        return (
            "Nothing was queued, so the assumption, which is about a queue, fails at every size: t2 is inside t1, "
            f"{metric(first.model.t1, 's')} for {first.elements} elements and {metric(last.model.t1, 's')} for "
            f"{last.elements:,}."
        )
    if first.model.slower_side is None:
        return f"The noise leaves open which side is the slower one at the smallest size: {_in_figures(first)}."
    if last.model.slower_side is None:
        return f"The noise leaves open which side is the slower one at the largest size: {_in_figures(last)}."
    met = crossing(points)
    if met is not None:
        return (
            f"Below about {met:,.0f} elements the assumption does not hold, and Python is the slower side: "
            f"{_in_figures(first)}; {_in_figures(last)}."
        )
    if last.t2_over_t1 < 1:
        return f"Python is the slower side at the largest size too (choose a larger --largest): {_in_figures(last)}."
    if any(point.t2_over_t1 < 1 for point in points):
        return f"Which side is slower changed more than once: measure again on a quieter machine. {_in_figures(first)}."
    return f"The assumption holds at every size, the smallest too: {_in_figures(first)}."


def _in_figures(point: Point) -> str:
    """Write the model for one size."""
    return f"with {point.elements:,} elements t1 is {metric(point.model.t1, 's')} and t2 {metric(point.model.t2, 's')}"


def about_book(point: Point) -> str:
    """Say whether the book's formula, which stands on the assumption, gives what was measured at a size."""
    t3, steps = point.model.t3, point.steps
    gives = (
        f"With {point.elements:,} elements the book's formula, which repeats t2, gives "
        f"{metric(point.by_the_book, 's')} an increment, and {metric(point.case.median, 's')} were measured"
    )
    match point.against(lambda t1, t2: (t1 + t3) / steps + t2):
        case 1:
            why = ", for t1 is what is repeated" if point.model.slower_side == 0 else ""
            return f"{gives}: it says too little{why}."
        case 0:
            return f"{gives}: it says too much."
    return f"{gives}: no difference is shown."


def what_would_change(backend: Backend, points: Sequence[Point]) -> str:
    """Say what would change where the assumption holds."""
    first, last = points[0], points[-1]
    if _is_inside(points) or backend.engine == "sync":
        return with_queue(backend, "t1 and t2 should be apart, and the longer one should set the pace")
    if first.model.slower_side is None or last.model.slower_side is None:
        return LESS_NOISE
    if (met := crossing(points)) is not None:
        return f"Operations of more than about {met:,.0f} elements: they take the device longer than issuing them."
    if last.t2_over_t1 < 1:
        return f"Larger vectors (--largest {16 * last.elements}): computing takes longer then, and issuing does not."
    if any(point.t2_over_t1 < 1 for point in points):
        return LESS_NOISE
    return (
        f"A device that takes less than {metric(first.model.t1, 's')} for a tiny operation: then issuing it would be "
        "the slower side."
    )


def about_floor(points: Sequence[Point]) -> str:
    """Say where the measured time leaves its floor, and how far that is from where the fit's regimes meet."""
    floor = metric(min(point.case.median for point in points), "s")
    left, met = floor_left(points), crossing(points)
    if left is None:
        return f"The measured time does not leave its floor of {floor} for good up to {points[-1].elements:,} elements."
    sentence = f"The measured time is a quarter above its floor of {floor} from {left:,.0f} elements on"
    if len({point.t2_over_t1 > 1 for point in points}) > 1 and met is None:
        return f"{sentence}; t1 and t2 cross more than once."
    if met is None:
        return f"{sentence}; t1 and t2 do not cross in this range, so it is a call's own cost that makes the floor."
    return f"{sentence}, which is {figure(left / met)} × as many as where t2 = t1 by the fit ({met:,.0f})."


def disturbance(points: Sequence[Point], at: Point) -> float | None:
    """Return by how many seconds an increment took longer than the longer of t1 and t2, on the median of other sizes.

    Of those at which the same side is the slower one; negative if it took less. None if there is no other such size:
    what a size shows itself would predict nothing.
    """
    others = [one for one in points if one is not at and one.is_python_slower == at.is_python_slower]
    return median(one.case.median - one.predicted for one in others) if others else None


def missed(points: Sequence[Point]) -> list[Point]:
    """Return the points at which the longer of t1 and t2 is shown to be wrong."""
    return [point for point in points if point.misses()]


def still_missed(points: Sequence[Point]) -> list[Point]:
    """Return the points at which that is wrong even with what both sides disturb each other at other sizes."""
    return [point for point in points if point.misses(disturbance(points, point) or 0.0)]


def about_predictions(points: Sequence[Point], shared: Sequence[str]) -> tuple[str, ...]:
    """Say where the longer of t1 and t2 fails and why, and where a model holds that knows of what is `shared`."""
    wrong = missed(points)
    worst = max(wrong or points, key=lambda point: abs(point.prediction_error))
    sentence = f"{metric(worst.predicted, 's')} for the {metric(worst.case.median, 's')} measured"
    if not wrong:
        return (f"At no size the longer of t1 and t2 is shown to be wrong; at the worst it predicts {sentence}.",)
    fails = (
        f"The model fails at {_sizes(wrong)} elements ({len(wrong)} of {len(points)} sizes): beyond the noise, the "
        f"longer of t1 and t2 is furthest off at {worst.elements:,} elements, where it predicts {sentence} "
        f"({percent(worst.prediction_error, '+')}). {_why(worst, shared, _is_inside(points))}"
    )
    return (fails, _about_disturbances(points, wrong))


def _why(worst: Point, shared: Sequence[str], inside: bool) -> str:
    """Say what the miss shows of the two sides, which the model takes for independent."""
    t1, t2, measured = worst.model.t1, worst.model.t2, worst.case.median
    common = "they share " + (listed(shared) if shared else "memory and caches, though no lock and no core for certain")
    if measured < worst.predicted:
        return (
            f"t1 was measured while the device was busy with products, {metric(t1, 's')}; in the run itself issuing "
            f"took {metric(worst.case.dispatch_median, 's')}. So t1 depends on what the device does: {common}."
        )
    if inside:
        return f"Nothing is queued, and more is done per increment in a run than the parts show: {common}."
    turns = over_rounds(lambda seconds: np.log(seconds / (t1 + t2)), worst.case.seconds)
    hindered = " even longer than both in turn would," if decide(turns, 0.0) == 1 else ""
    return (
        f"It took{hindered} {metric(measured - worst.predicted, 's')} more than the longer side alone (both in turn: "
        f"{metric(t1 + t2, 's')}): the sides disturb each other, for {common}."
    )


def _about_disturbances(points: Sequence[Point], wrong: Sequence[Point]) -> str:
    """Say where the longer of both and what they disturb each other holds."""
    sides = {
        "where Python is slower": [point for point in points if point.is_python_slower],
        "where the device is": [point for point in points if not point.is_python_slower],
    }
    amounts = [
        f"{_signed(median(one.case.median - one.predicted for one in own))} {side}"
        for side, own in sides.items()
        if own
    ]
    better = (
        f"The longer of both plus what they disturb each other ({listed(amounts)}; at each size found at the others)"
    )
    left = still_missed(points)
    if not left:
        return f"{better} is not shown to be wrong at any size."
    if len(left) >= len(wrong):
        return f"{better} is no better: it fails at {_sizes(left)} elements, so the disturbance depends on the size."
    return f"{better} holds but at {_sizes(left)} elements."


def _sizes(points: Sequence[Point]) -> str:
    return listed([f"{point.elements:,}" for point in points])


def _signed(seconds: float) -> str:
    return ("−" if seconds < 0 else "+") + metric(abs(seconds), "s")


def about_overlap(points: Sequence[Point]) -> tuple[str, ...]:
    """Say whether issuing and computing went on at the same time, if they take equally long; nothing if they do not."""
    alike = min(points, key=lambda point: abs(log(max(point.t2_over_t1, 1e-9))))
    shorter, longer = sorted((alike.model.t1, alike.model.t2))
    if shorter < longer / 2:
        return ()
    hidden = over_rounds(lambda measured: (shorter + longer - measured) / shorter, alike.case.seconds)
    meanings = {
        0: "the two sides took turns, or hindered each other",
        1: "the two sides worked at the same time",
        None: "the noise leaves open whether the two sides worked at the same time",
    }
    meaning = meanings[decide(hidden, 0.5)]
    sentence = (
        f"Issuing and computing are most alike at {alike.elements:,} elements: the longer takes {metric(longer, 's')}, "
        f"both in turn {metric(shorter + longer, 's')}, and {metric(alike.case.median, 's')} were measured: {meaning}."
    )
    return (sentence,)
