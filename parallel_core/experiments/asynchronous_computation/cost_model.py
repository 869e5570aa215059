"""Cost model: how large must an operation be for computing it, and not issuing it, to set the pace?

Book: Dive into Deep Learning, "Asynchronous Computation", exercise 1 of the MXNet edition: if issuing an increment
takes t1, computing it t2 and reporting the result t3, ten thousand that are waited for once take t1 + 10 000 · t2 + t3.
Why must 10 000 · t2 > 9 999 · t1 be assumed?

Prediction: Issuing and computing go on at the same time, so the slower of the two is what is repeated: an operation
takes the longer of t1 and t2. t1 does not depend on the vector's size and t2 does. For small vectors the time per
operation is flat at t1, Python is the slower side, the assumption does not hold and the book's formula predicts too
little. For large ones the time grows with the size and the formula is right. The two regimes meet where t2 = t1. If
nothing is queued, t1 contains the computing and there is no second regime.

Method: For vectors of 2, 8, 32, … elements many increments are launched and waited for once, more of them for small
vectors than for large ones. t1, t2 and t3 are measured separately at each size, behind matrix multiplications that keep
the device busy, so the predictions know nothing of the times that they predict.

Look at: the curves over the number of elements: measured, the longer of t1 and t2, the book's formula and t1;
`smallest_t2_over_t1` for two elements; `crossing_elements`, the size where t2 = t1; `floor_left_elements`, the size
where the measured time leaves its floor, by a quarter.

Read: If `smallest_t2_over_t1` is below 1, Python is the slower side and the assumption fails for tiny operations. Above
1 it holds at every size, because accepting a tiny operation already costs the device more than issuing it costs Python.
The longer of t1 and t2 takes the two sides for independent. It predicts too little if they share an interpreter lock or
a core, and too much if issuing costs more while the device is busy with multiplications than in the run.
`sizes_missed` counts the sizes at which it is off by more than the noise, and `sizes_missed_with_disturbance` those at
which it is even if both sides disturb each other by as much as at the other sizes with the same slower side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import median
from typing import Annotated

import numpy as np

from backends import Array
from parallel_core.experiments.asynchronous_computation.increments import (
    CostModel,
    fit_cost_model,
    matrix_to_wait_behind,
    row_of_ones,
    t2_over_t1,
)
from parallel_core.experiments.runner.changes import LESS_NOISE, Change, larger, with_queue
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.works import incremented, increments
from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import measure
from parallel_core.measurement.verdicts import over_rounds
from parallel_core.system.formatting import figure

__all__ = [
    "EXPERIMENT",
    "T2_OVER_T1",
    "Point",
    "crossing",
    "disturbance",
    "floor_left",
    "missed",
    "program",
    "sizes_up_to",
]

TARGET_SECONDS = 0.01
"""About how long the increments of one timing take, within these numbers of steps."""
FEWEST, MOST = 20, 1000
ABOVE_FLOOR = 1.25
SHORTEST = 1e-12
"""Seconds: no prediction is shorter."""


def program(
    trial: Trial, largest: Annotated[int, Parameter("Elements of a vector, at the most.", maximum=2**30)] = 2**19
) -> None:
    """Fit the cost model for vectors of up to `largest` elements, then time increments of them, waited for once."""
    vectors = {size: row_of_ones(trial, size) for size in sizes_up_to(largest)}
    matrix = matrix_to_wait_behind(trial)
    fitted: dict[int, tuple[int, CostModel]] = {}
    for place, (size, x) in enumerate(vectors.items()):
        tell(f"the cost model of {size:,} elements", place / len(vectors))
        steps = _enough_steps(trial, x)
        of_this = trial.left(0.6) / (len(vectors) - place)
        fitted[size] = steps, fit_cost_model(trial, x, matrix, steps, trial.rounds, of_this)
        trial.time(_named(size), increments(trial, x, steps), repeats=steps, curve="measured", at=size)
    once = [incremented(trial, x, 1) for x in vectors.values()]
    trial.check("increments", once, [np.full((1, size), 2.0) for size in vectors])
    cases = trial.run(0.95)
    points = [Point(size, *fitted[size], cases[_named(size)]) for size in vectors]
    for point in points:
        for label, seconds in {
            "longer of t1 and t2": point.predicted,
            "book's formula": point.model.waiting_once_by_the_book(point.steps) / point.steps,
            "longer of both and disturbance": point.predicted + disturbance(points, point),
            "t1": point.model.t1,
        }.items():
            trial.points.setdefault(label, {})[point.elements] = seconds
    trial.found(T2_OVER_T1.name, points[0].model.t2_over_t1)
    count = len(missed(points))
    trial.found(MISSED.name, Interval(count, count, count))
    trial.found("sizes_missed_with_disturbance", len(missed(points, disturbed=True)))
    trial.found(
        "largest_prediction_error_fraction", max(abs(point.predicted / point.case.median - 1) for point in points)
    )
    for name, elements in {"crossing_elements": crossing(points), "floor_left_elements": floor_left(points)}.items():
        if elements is not None:
            trial.found(name, elements)


def sizes_up_to(largest: int) -> tuple[int, ...]:
    """List numbers of elements in factors of four: 2, 8, 32, … up to `largest`, and 2 in any case."""
    return tuple(2 * 4**power for power in range(32) if power == 0 or 2 * 4**power <= largest)


def _named(size: int) -> str:
    """Return the name of a case."""
    return f"increment of {size} elements"


def _enough_steps(trial: Trial, x: Array) -> int:
    """Return how many increments of a vector take about a hundredth of a second."""
    steps = FEWEST
    # A few are dear apiece, since waiting once is in them: the first estimate is corrected by a second and a third.
    for _ in range(3):
        launch = partial(incremented, trial, x, steps)
        seconds = min(measure(trial.backend, launch)[1] for _ in range(3)) / steps
        steps = min(MOST, max(FEWEST, round(TARGET_SECONDS / seconds)))
    return steps


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

    def misses(self, disturbance: float = 0.0) -> bool:
        """Return whether the longer of t1 and t2, and so many seconds more, is wrong beyond the noise.

        The measured time is uncertain and so are t1 and t2, which were measured separately.
        """

        def ratio(measured: np.ndarray, t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
            longer = np.maximum(t1, t2)
            predicted = longer + (t1 + t2 + self.model.t3 - longer) / self.steps + disturbance
            return np.log(measured / np.maximum(predicted, SHORTEST))

        found = over_rounds(ratio, self.case.seconds, self.model.issued, self.model.computed, paired=False)
        return decide(found, 0.0) is not None


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


def disturbance(points: Sequence[Point], at: Point) -> float:
    """Return by how many seconds an increment took longer than the longer of t1 and t2, on the median of other sizes.

    Of those at which the same side is the slower one, since what a size shows itself would predict nothing; 0 if there
    is none, and negative if it took less.
    """
    alike = [one for one in points if one is not at and (one.t2_over_t1 <= 1) == (at.t2_over_t1 <= 1)]
    return median(one.case.median - one.predicted for one in alike) if alike else 0.0


def missed(points: Sequence[Point], disturbed: bool = False) -> list[Point]:
    """Return the points at which the longer of t1 and t2, with what both disturb each other or without it, is wrong."""
    return [point for point in points if point.misses(disturbance(points, point) if disturbed else 0.0)]


T2_OVER_T1 = t2_over_t1("smallest_t2_over_t1")
MISSED = Metric(
    "sizes_missed",
    means="at how many sizes the longer of t1 and t2 is not the measured time",
    bands=(
        Band(
            LOWEST, "predicts", "The longer of issuing and computing predicts the time at every size, within the noise"
        ),
        Band(0.5, "misses", "The longer of issuing and computing does not predict the time at some sizes"),
    ),
)

EXPERIMENT = Experiment(
    name="cost-model",
    position=3,
    exercises=(Exercise(1, "Why must 10,000 t2 > 9,999 t1 be assumed?", edition="MXNet"),),
    program=program,
    case=_named(2),
    metrics=(T2_OVER_T1, MISSED),
    changes=(
        with_queue("t1 and t2 should be separate, and the longer one should set the pace"),
        LESS_NOISE,
        Change(
            lambda found: "crossing_elements" in found.result.metrics,
            lambda found: (
                f"Operations of more than {figure(found.result.metrics['crossing_elements'])} elements: "
                "computing them takes longer than issuing them."
            ),
        ),
        Change(
            lambda found: found.is_in(T2_OVER_T1.name, "device"),
            "A faster device for tiny operations: issuing them would be the slower side then.",
        ),
        larger("largest", "Larger vectors", "computing takes longer then, and issuing does not"),
    ),
    settings=(),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "largest": 2**17}},
    curves=Curves(
        over="elements",
        quantity="seconds",
        x_title="elements of the vector",
        y_title="seconds per increment, waiting once",
        log_y=True,
        dotted=("longer of t1 and t2", "book's formula", "longer of both and disturbance", "t1"),
        caption="Flat where Python sets the pace, rising where computing does.",
    ),
)
