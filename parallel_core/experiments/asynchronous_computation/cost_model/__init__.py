"""Cost model: how large must an operation be for computing it, and not issuing it, to set the pace?

Book: Dive into Deep Learning, "Asynchronous Computation", exercise 1 of the MXNet edition: if issuing an increment
takes t1, computing it t2 and reporting the result t3, ten thousand that are waited for once take t1 + 10 000 · t2 + t3.
Why must 10 000 · t2 > 9 999 · t1 be assumed?

Prediction: Issuing and computing go on at the same time, so the slower of the two is what is repeated: an operation
takes the longer of t1 and t2. t1 does not depend on the vector's size and t2 does. For small vectors the time per
operation is flat at t1, Python is the slower side, the assumption does not hold and the book's formula says too little.
For large ones the time grows with the size and the formula is right. The two regimes meet where t2 = t1. If nothing
is queued, t1 contains the computing and there is no second regime.

Method: For vectors of 2, 8, 32, … elements many increments are launched and waited for once, more of them for small
vectors than for large ones. t1, t2 and t3 are measured apart at each size, behind products that keep the device busy,
so the predictions know nothing of the times that they predict.

Look at: the curves over the number of elements: measured, the longer of t1 and t2, the book's formula and t1;
`smallest_t2_over_t1` for two elements; `crossing_elements`, the size where t2 = t1; `floor_left_elements`, the size
where the measured time leaves its floor, by a quarter.

Read: If `smallest_t2_over_t1` is below 1, Python is the slower side and the assumption fails for tiny operations. Above
1 it holds at every size, because accepting a tiny operation already costs the device more than issuing it costs Python.
The longer of t1 and t2 takes the two sides for independent. It predicts too little if they share an interpreter lock or
a core, and too much if issuing costs more while the device is busy with products than in the run. Where it misses by
more than the interval the notes say that it fails, and whether it holds with what the sides disturb each other: the
median of how far it is off at the other sizes at which the same side is the slower one.
"""

from functools import partial
from typing import Annotated

import numpy as np

from backends import Array, Backend
from backends.host import core_numbers
from parallel_core.experiments.asynchronous_computation.cost_model import verdicts
from parallel_core.experiments.asynchronous_computation.increments import (
    CostModel,
    fit_cost_model,
    increment,
    increments_as_unit,
    matrix_to_wait_behind,
    row_of_ones,
)
from parallel_core.experiments.experiment import BUDGET, Budget, Exercise, Experiment, Parameter, Rounds
from parallel_core.experiments.measuring import Units, largest_error, result_of, time_in_turn
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import countdown, measure

__all__ = ["EXPERIMENT", "run", "sizes_up_to"]

TARGET_SECONDS = 0.01
"""About how long the increments of one timing take, within these numbers of steps."""
FEWEST, MOST = 20, 1000


def sizes_up_to(largest: int) -> tuple[int, ...]:
    """List numbers of elements in factors of four: 2, 8, 32, … up to `largest`, and 2 in any case."""
    return tuple(2 * 4**power for power in range(32) if power == 0 or 2 * 4**power <= largest)


def run(
    backend: Backend,
    largest: Annotated[int, Parameter("Elements of a vector, at the most.", maximum=2**30)] = 2**19,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time increments of vectors of up to `largest` elements, waited for once, and fit the cost model at each size."""
    left = countdown(budget)
    vectors = {size: row_of_ones(backend, size) for size in sizes_up_to(largest)}
    matrix = matrix_to_wait_behind(backend)
    steps: dict[int, int] = {}
    models: dict[int, CostModel] = {}
    for place, (size, x) in enumerate(vectors.items()):
        tell(f"the cost model of {size:,} elements", place / len(vectors))
        steps[size] = _enough_steps(backend, x)
        of_this = left(0.6) / (len(vectors) - place)
        models[size] = fit_cost_model(backend, x, matrix, steps[size], rounds, of_this)
    names = {_named(size): size for size in vectors}
    cases = time_in_turn(
        backend,
        {name: partial(increment, backend, vectors[size], steps[size]) for name, size in names.items()},
        rounds,
        repeats={name: steps[size] for name, size in names.items()},
        units=Units(
            {name: increments_as_unit(backend, vectors[size], steps[size]) for name, size in names.items()},
            {name: (name,) for name in names},
        ),
        budget=left(0.95),
    )
    points = [verdicts.Point(size, steps[size], models[size], cases[_named(size)]) for size in vectors]
    sizes = {"crossing_elements": verdicts.crossing(points), "floor_left_elements": verdicts.floor_left(points)}
    once = [backend.to_numpy(increment(backend, x, 1)) for x in vectors.values()]
    return result_of(
        "cost-model",
        backend,
        parameters={"largest": largest, "rounds": rounds, "budget": budget},
        cases=list(cases.values()),
        metrics={
            "smallest_t2_over_t1": points[0].t2_over_t1,
            "largest_prediction_error_fraction": max(abs(point.prediction_error) for point in points),
            "sizes_missed": len(verdicts.missed(points)),
            "sizes_missed_with_disturbance": len(verdicts.still_missed(points)),
            **{name: size for name, size in sizes.items() if size is not None},
        },
        intervals={"smallest_t2_over_t1": ratio} if (ratio := models[points[0].elements].t2_over_t1) else {},
        explanation=verdicts.verdict(points),
        answer=Answer((verdicts.about_book(points[0]),), verdicts.what_would_change(backend, points)),
        notes=(
            verdicts.about_floor(points),
            *verdicts.about_predictions(points, _shared(backend)),
            *verdicts.about_overlap(points),
        ),
        error=largest_error(once, [np.full((1, size), 2.0) for size in vectors]),
        compared="increments",
        series={
            "elements": tuple(float(point.elements) for point in points),
            "seconds measured": tuple(point.case.median for point in points),
            "seconds longer of t1 and t2": tuple(point.predicted for point in points),
            "seconds book's formula": tuple(point.by_the_book for point in points),
            "seconds longer of both and disturbance": tuple(
                point.predicted + (verdicts.disturbance(points, point) or 0.0) for point in points
            ),
            "seconds t1": tuple(point.model.t1 for point in points),
        },
    )


def _shared(backend: Backend) -> list[str]:
    """List what the issuing side shares with the device's worker, as far as it is known."""
    # The workers of an engine of its own hold no interpreter lock.
    lock = ["Python's interpreter lock"] if backend.scheduler.startswith("worker threads") else []
    kept_to = backend.cores[0] if backend.cores else set()
    return lock + (["a core"] if kept_to and kept_to >= set(core_numbers()) else [])


def _named(size: int) -> str:
    return f"increment of {size} elements"


def _enough_steps(backend: Backend, x: Array) -> int:
    steps = FEWEST
    # A few are dear apiece, since waiting once is in them: the first estimate is corrected by a second and a third.
    for _ in range(3):
        seconds = min(measure(backend, partial(increment, backend, x, steps))[1] for _ in range(3)) / steps
        steps = min(MOST, max(FEWEST, round(TARGET_SECONDS / seconds)))
    return steps


EXPERIMENT = Experiment(
    name="cost-model",
    position=3,
    exercises=(Exercise(1, "Why must 10,000 t2 > 9,999 t1 be assumed?", edition="MXNet"),),
    run=run,
    case="increment of 2 elements",
    metric="smallest_t2_over_t1",
    metric_means="the time to compute the smallest operation over that to issue it: below 1 Python is slower",
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
