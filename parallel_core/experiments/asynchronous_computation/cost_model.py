"""Cost model: how large must an operation be for computing it, and not issuing it, to set the pace?

Book: Dive into Deep Learning, "Asynchronous Computation", exercise 1 of the MXNet edition: if
issuing an increment takes t1, computing it t2 and reporting the result t3, ten thousand that are
waited for once take t1 + 10 000 · t2 + t3. Why must 10 000 · t2 > 9 999 · t1 be assumed?

Prediction: Issuing and computing go on at the same time, so an operation takes the longer of t1 and
t2. Of these only t2 depends on the vector's size. For small vectors the time per operation is flat
at t1: Python is the slower side, the assumption does not hold and the book's formula predicts too
little. For large ones the time grows with the size and the formula is right. If nothing is queued,
t1 contains the computing and there is no second regime.

Method: For vectors of 2, 8, 32, … elements many increments, fewer for large ones, are launched and
waited for once. t1, t2 and t3 are measured separately at each size, behind matrix multiplications
that keep the device busy, so the predictions know nothing of the times that they predict. Of the
largest vector, increments are recorded by the framework's profiler: those are counted that were
launched before the one before was done. Of small ones they are not, because a profiler takes longer
than the increment that it records.

Look at: the count; the curves over the number of elements: measured, the longer of t1 and t2, the
book's formula and t1; `smallest_t2_over_t1` for two elements; `crossing_elements`, the size where
t2 = t1.

Read: If nearly all increments of the largest vector were launched behind another one, the device
was the slower side there. If `smallest_t2_over_t1` is below 1, the assumption fails for tiny
operations. Above 1 it holds at every size, because accepting a tiny operation already costs the
device more than issuing it costs Python. The longer of t1 and t2 takes the two sides for
independent. It predicts too little if they share an interpreter lock or a core, and too much if
issuing costs more while the device is busy with multiplications than in the run. `sizes_missed`
counts the sizes at which it is off by more than the noise of so many sizes; its upper bound adds
those at which the noise would hide that it is off by half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Annotated

import numpy as np

from backends import Array
from parallel_core.experiments.asynchronous_computation.fitting import CostModel, fit_cost_model
from parallel_core.experiments.runner.changes import LESS_NOISE, Change, larger, with_queue
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, DirectAnswer, Metric
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.tallies import launched_behind_unfinished
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.workloads import geometric, incremented, increments, ones, size_up_to
from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import measure
from parallel_core.system.formatting import figure, percent, seconds

HALF_AS_MUCH_AGAIN = log(1.5)
GOOD_PREDICTION = 0.25
"""The share of the predicted time by which the measured one may differ."""
BY_THE_BOOK = "book's formula"


def program(
    trial: Trial,
    largest: Annotated[int, Parameter("Elements of a vector, at the most.", maximum=2**30)] = 2**19,
) -> None:
    """Fit the cost model for vectors of 2, 8, 32, … up to `largest` elements, then time increments
    of them, waited for once.
    """
    device = trial.devices[0]
    vectors = {size: ones(trial, device, size) for size in geometric(2, largest, 4)}
    matrix = trial.normal(size_up_to(trial, 0.01, 1000).value, device)
    steps_at: dict[int, int] = {}
    model_at: dict[int, CostModel] = {}
    for number, (size, x) in enumerate(vectors.items()):
        tell(f"the cost model of {size:,} elements", number / len(vectors))
        steps = enough_steps(trial, x)
        budget = trial.left(0.6) / (len(vectors) - number)
        steps_at[size] = steps
        model_at[size] = fit_cost_model(trial, x, matrix, budget, steps, rounds=trial.rounds)
        work = increments(trial, x, steps, device)
        trial.time(case_of(size), work, repeats=steps, curve="measured", at=size)
    incremented_once = [incremented(trial, x, 1) for x in vectors.values()]
    trial.check("increments", incremented_once, [np.full((1, size), 2.0) for size in vectors])
    cases = trial.run(0.95)
    points = []
    for size in vectors:
        case = cases[case_of(size)]
        points.append(Point(size, steps_at[size], model_at[size], case))
    find_figures(trial, points)


def case_of(size: int) -> str:
    """Name the case of a vector of `size` elements."""
    return f"increment of {size} elements"


def enough_steps(trial: Trial, x: Array) -> int:
    """Return how many increments of a vector, 20 to 1000, take about a hundredth of a second."""
    steps = 20
    # The time of a few increments is mostly the wait at their end, so the first estimate is too
    # low; the second and third ones correct it.
    for _ in range(3):
        launch = partial(incremented, trial, x, steps)
        timings = [measure(trial.backend, launch) for _ in range(3)]
        fastest = min(seconds for _, seconds in timings)
        seconds_of_step = fastest / steps
        steps = min(1000, max(20, round(0.01 / seconds_of_step)))
    return steps


@dataclass(frozen=True)
class Point:
    """The measured time and the cost model at one size of vectors."""

    elements: int
    steps: int
    """The increments that were timed together."""
    model: CostModel
    case: Case
    """The case of one increment."""

    @property
    def predicted(self) -> float:
        """The predicted seconds of an increment: the longer of t1 and t2 sets the pace."""
        return self.model.waiting_once(self.steps) / self.steps

    def misses(self, among: int = 1) -> bool:
        """Return whether the prediction is wrong beyond the noise.

        The more points it is `among`, the more noise is allowed for: all of them together are
        called wrong by chance no more often than a single point is.
        """
        return decide(self._log_error(among), 0.0) is not None

    def is_unknown(self, among: int = 1) -> bool:
        """Return whether the noise leaves open whether the prediction is right or off by half."""
        error = self._log_error(among)
        could_be_right = decide(error, 0.0) is None
        could_be_off = decide(error, -HALF_AS_MUCH_AGAIN, HALF_AS_MUCH_AGAIN) is None
        return could_be_right and could_be_off

    def _log_error(self, among: int) -> Interval:
        """Return the logarithm of measured over predicted seconds, with its interval."""
        return self.model.log_error(self.case, self.steps, among)


def find_figures(trial: Trial, points: Sequence[Point]) -> None:
    """Find the curves of the predictions, and how many of them the measured times miss."""
    for point in points:
        by_the_book = point.model.waiting_once_by_the_book(point.steps) / point.steps
        predictions = {
            "longer of t1 and t2": point.predicted,
            BY_THE_BOOK: by_the_book,
            "t1": point.model.t1,
        }
        for label, predicted in predictions.items():
            trial.points[label][point.elements] = predicted
    trial.found(SMALLEST.name, points[0].model.t2_over_t1)
    missed = sum(point.misses(among=len(points)) for point in points)
    unknown = sum(point.is_unknown(among=len(points)) for point in points)
    trial.found(MISSED.name, Interval(missed, missed, missed + unknown))
    largest_error = max(abs(point.predicted / point.case.median - 1) for point in points)
    trial.found("largest_prediction_error_fraction", largest_error)
    trial.found("crossing_elements", crossing(points))


def passes_one(sizes: Sequence[int], ratios: Sequence[float]) -> float | None:
    """Return the size from which on a ratio is above 1, interpolated between logarithms.

    None if the ratio is above 1 at all sizes, or is not at the last one.
    """
    not_above = [index for index, ratio in enumerate(ratios) if ratio <= 1]
    if not not_above or not_above[-1] == len(sizes) - 1:
        return None
    last = not_above[-1]
    size_before, size_after = sizes[last], sizes[last + 1]
    # A fitted time may be 0.
    log_before = log(max(ratios[last], 1e-9))
    log_after = log(max(ratios[last + 1], 1e-9))
    share_of_way = -log_before / (log_after - log_before)
    return size_before * (size_after / size_before) ** share_of_way


def crossing(points: Sequence[Point]) -> float | None:
    """Return the number of elements from which on computing takes longer than issuing.

    None if issuing does not take longer at first, or takes longer at the last size too.
    """
    if not points[0].model.python_is_slower:
        return None
    elements = [point.elements for point in points]
    ratios = [point.model.t2 / point.model.t1 for point in points]
    return passes_one(elements, ratios)


def whether_it_predicts(result: Result) -> DirectAnswer | None:
    """Say whether the book's formula predicts the time of an increment, where not, and why."""
    sizes = result.series.get("elements")
    if sizes is None:
        return None
    measured, predicted = result.series["seconds measured"], result.series[f"seconds {BY_THE_BOOK}"]
    ratios = [time / by_book for time, by_book in zip(measured, predicted, strict=True)]
    errors = [abs(ratio - 1) for ratio in ratios]
    worst = max(range(len(sizes)), key=errors.__getitem__)
    good = [size for size, error in zip(sizes, errors, strict=True) if error <= GOOD_PREDICTION]
    right = f"Within {percent(GOOD_PREDICTION)} it is right at {len(good)} of {len(sizes)} sizes"
    if len(good) == len(sizes):
        return DirectAnswer(
            "predicts",
            f"Yes: within ~{percent(errors[worst])} at every size from {sizes[0]:g} to "
            f"{sizes[-1]:,.0f} elements.",
        )
    t2_over_t1 = result.interval(SMALLEST.name)
    because = ""
    if t2_over_t1 is not None and t2_over_t1.high < 1:
        because = ", because launching one (t1) takes longer than computing it (t2)"
    return DirectAnswer(
        "misses",
        f"No: at {sizes[worst]:,.0f} elements it predicts {seconds(predicted[worst])} for an "
        f"increment, and {seconds(measured[worst])} were measured (~{figure(ratios[worst])} times "
        f"that){because}. {right}.",
    )


SMALLEST = Metric(
    "smallest_t2_over_t1",
    title="Computing over launching",
    means="the time to compute the smallest operation over that to issue it: below 1 Python is "
    "slower",
    about="the ratio of t2 to t1",
    not_if_counted="inside",
    bands=(
        Band(LOWEST, "inside", "Nothing was queued, so issuing an increment contains computing it"),
        Band(
            0.02,
            "python",
            "Issuing an increment takes longer than computing it, against the book's assumption",
        ),
        Band(
            1.0,
            "device",
            "Computing an increment takes longer than issuing it, as the book assumes",
        ),
    ),
)
MISSED = Metric(
    "sizes_missed",
    means="at how many sizes the longer of t1 and t2 is not the measured time",
    bands=(
        Band(
            LOWEST,
            "predicts",
            "The longer of issuing and computing predicts the time at every size",
        ),
        Band(
            0.5,
            "misses",
            "The longer of issuing and computing does not predict the time at some sizes",
        ),
    ),
)

BEHIND = Count(
    "launched_behind_unfinished",
    "increments were launched before the one before was done",
    case="increment of 524288 elements",
    tally=launched_behind_unfinished,
    title="Behind another increment",
    bands=(
        Band(LOWEST, "issuing", "Issuing set the pace for the largest vector"),
        Band(0.5, "device", "The device set the pace for the largest vector"),
    ),
)

EXPERIMENT = Experiment(
    name="cost-model",
    question="Does t1 + n·t2 + t3 predict the time?",
    position=3,
    exercises=(Exercise(1, "Why must 10,000 t2 > 9,999 t1 be assumed?", edition="MXNet"),),
    program=program,
    case="increment of 2 elements",
    metrics=(SMALLEST, MISSED),
    counts=(BEHIND,),
    answer=whether_it_predicts,
    changes=(
        with_queue("t1 and t2 should be separate, and the longer one should set the pace"),
        LESS_NOISE,
        Change(
            lambda answered: "crossing_elements" in answered.result.metrics,
            lambda answered: (
                f"Operations of more than {figure(answered.result.metrics['crossing_elements'])} "
                "elements: "
                "computing them takes longer than issuing them."
            ),
        ),
        Change(
            lambda answered: answered.is_in(SMALLEST.name, "device"),
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
        dotted=("longer of t1 and t2", BY_THE_BOOK, "t1"),
        caption="Flat where Python sets the pace, rising where computing does.",
    ),
)
