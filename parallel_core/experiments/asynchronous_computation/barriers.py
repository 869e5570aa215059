"""Barriers: does waiting for one intermediate result wait for the work that is queued behind it?

Book: Dive into Deep Learning, "Asynchronous Computation", exercise 2 of the MXNet edition: measure
the difference between waiting for everything and waiting for one result.

Prediction: Waiting for everything takes longer with each matrix multiplication that is queued.
Waiting for one result takes as long however many are queued behind it, if the engine distinguishes
values: on the same device, since its queue gets to them later, and on another device, which works
meanwhile. If a wait is for a device's whole queue, only another device's work is not waited for. A
synchronous engine has done everything before it can be waited for, so both waits end at the same
time.

Method: A multiplication is launched and behind it 0, 1, 2, 4, … more of the same size, on the same
device or on another one. Then the first result is waited for, or everything. The clock runs from
before the first launch, so that an engine which computes at launch is timed alike. A straight line
is fitted by least squares to the seconds over the number of multiplications: its slope is what a
queued one adds.

With the most behind it, the first result is also converted to NumPy, to a number (its sum, which is
launched behind the others) and to text, which waits without saying so. That is not timed: as after
the waits, the multiplications are counted that were not done.

Look at: the count of multiplications that were not done when the wait, or the conversion, returned;
`added_wait_fraction`, what a queued multiplication adds to waiting for one result as a
share of what it adds to waiting for all, with those behind it on the same device;
`other_device_added_wait_fraction`, with those behind it on another device; and the curves of both
waits.

Read: If nearly all were not done the wait was selective; if all were done, it was not. Near 0 a
wait is selective: it does not wait for what is queued behind. Near 1 it is not, or
nothing was queued: `dispatch_fraction`, the share of the time after which the launches had
returned, shows which. Launching takes time in either case, so the share does not reach 0. If
devices share cores, work on another device slows the awaited one too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.asynchronous_computation.asynchrony import (
    DISPATCH_FRACTION,
    dispatch_fraction,
)
from parallel_core.experiments.runner.changes import LESS_NOISE, larger, with_queue, without_queue
from parallel_core.experiments.runner.counts import IN_PART, MOSTLY, Count
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Exercise, Experiment
from parallel_core.experiments.runner.formulas import Formula, Times, Values
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Choice, Chosen, Parameter
from parallel_core.experiments.runner.tallies import unfinished_after_wait_for_one
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.experiments.workloads import (
    doublings,
    larger_size_to_count,
    multiplications,
    multiplied,
    size_for,
)
from parallel_core.measurement.sweep import Curves

SAME, OTHER = "on the same device", "on another device"
WAIT, WAITALL = "wait", "waitall"
TARGET_SECONDS = 0.04
"""The seconds of 20 multiplications: each takes far longer than its launch, and 64 not too long."""
SIZE = Chosen(
    "Side of the matrices. Default: chosen for about 2 ms.",
    how=lambda trial: Choice(size_for(trial, TARGET_SECONDS, 20), "time"),
)
DEEPEST = Parameter("Multiplications behind the first, at the most.")
TO_NUMBER = "to a number"
CONVERSIONS: Mapping[str, Callable[[Backend, Array], object]] = {
    "to NumPy": lambda backend, x: backend.to_numpy(x),
    TO_NUMBER: lambda backend, x: float(backend.to_numpy(backend.launch(backend.ops.total, x))),
    "to text": lambda backend, x: str(backend.to_numpy(x)),
}
"""Conversions, which wait for a result without saying so. The number is the sum of a matrix."""


def program(
    trial: Trial, size: Annotated[int, SIZE], deepest: Annotated[int, DEEPEST] = 64
) -> None:
    """Time both waits with 0, 1, 2, 4, … `deepest` multiplications behind the awaited one.

    Those behind are queued on the same device, and then on another one.
    """
    x = trial.normal(size, trial.devices[0])
    awaited = multiplications(trial, x, 1)
    matrices = {SAME: x}
    if len(trial.devices) > 1:
        matrices[OTHER] = trial.normal(size, trial.devices[1])
    for place, matrix in matrices.items():
        time_waits(trial, awaited, matrix, place, deepest)
        products = [*awaited.launch(), multiplied(trial, matrix, deepest)[-1]]
        on_host = [trial.backend.to_numpy(factor) for factor in (x, matrix)]
        trial.check("products", products, [factor @ factor for factor in on_host])
    trial.run()
    counted = matrices
    if larger_size := larger_size_to_count(trial, LEFT.case, size):
        counted = {
            place: trial.normal(larger_size, device)
            for place, device in zip(matrices, trial.devices, strict=False)
        }
    count_waits(trial, counted, deepest)
    find_figures(trial, matrices, deepest)


def time_waits(trial: Trial, awaited: Work, matrix: Array, place: str, deepest: int) -> None:
    """Register the cases of both waits, with multiplications of a matrix behind the awaited one.

    The bare time of a wait is that of the multiplications that it waits for, and is measured with
    the most of them behind.
    """
    # On the same device, one unit does the awaited multiplication and all behind it.
    multiplications_in_unit = deepest + 1 if place == SAME else deepest
    unit_of_all = multiplications(trial, matrix, multiplications_in_unit)
    bare_of_deepest: dict[str, tuple[Work, ...]] = {
        WAIT: (awaited,),
        WAITALL: (awaited, unit_of_all),
    }

    # A profiler replaces the methods of waiting: they are looked up when they are called.
    def wait_for_first(results: list[Any]) -> None:
        awaited_results = results[0]
        trial.backend.wait(awaited_results[0])

    waits = {
        WAIT: wait_for_first,
        WAITALL: lambda _results: trial.backend.waitall(),
    }
    for count in depths(deepest):
        queued = Work(partial(multiplied, trial, matrix, count))
        for wait, until in waits.items():
            bare = bare_of_deepest[wait] if count == deepest else ()
            trial.time(
                named(wait, count, place),
                awaited,
                queued,
                until=until,
                bare=bare,
                curve=f"{wait}, {place}",
                at=count,
            )


def find_figures(trial: Trial, places: Iterable[str], deepest: int) -> None:
    """Find what a multiplication adds to the waits, and the share of time that launches take."""
    for place in places:
        trial.found_by(FRACTIONS[place].name, added_fraction(place, deepest), is_ratio=False)
    trial.found_by("added_to_wait_seconds", added_by(WAIT, SAME, deepest), is_ratio=False)
    trial.found_by("added_to_waitall_seconds", added_by(WAITALL, SAME, deepest), is_ratio=False)
    for_one, for_all = named(WAIT, deepest, SAME), named(WAITALL, deepest, SAME)
    dispatched = trial.found_by(DISPATCH_FRACTION.name, dispatch_fraction(for_all), is_ratio=False)
    # A wait for all must not be faster than a wait for one, unless nothing was queued: then control
    # returns late, and either may be a little faster.
    if dispatched is not None and dispatched.high < 0.8:
        trial.cases[for_all] = replace(trial.cases[for_all], parts=(for_one,))


def count_waits(trial: Trial, matrix_at: Mapping[str, Array], deepest: int) -> None:
    """Let it be counted what each wait for the first multiplication leaves behind it undone."""
    backend, x = trial.backend, matrix_at[SAME]

    def launched_on(matrix: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        return multiplied(trial, x), multiplied(trial, matrix, deepest)

    def done_with_first(
        use: Callable[[Backend, Array], object],
    ) -> Callable[[Sequence[Any]], object]:
        return lambda launched: use(backend, launched[0][0])

    for place, matrix in matrix_at.items():
        # A profiler replaces the method of waiting: it is looked up when it is called.
        wait = done_with_first(lambda backend, awaited: backend.wait(awaited))
        trial.count_as(named(WAIT, deepest, place), partial(launched_on, matrix), wait)
    for conversion, convert in CONVERSIONS.items():
        converted = done_with_first(convert)
        trial.count_as(named(conversion, deepest, SAME), partial(launched_on, x), converted)


def depths(deepest: int) -> tuple[int, ...]:
    """Return 0, the powers of two up to `deepest`, and `deepest`."""
    return (0, *doublings(deepest))


def named(wait: str, count: int, place: str) -> str:
    """Name a case: `wait, 64 behind on the same device`."""
    return f"{wait}, {count} behind {place}"


def added_by(wait: str, place: str, deepest: int) -> Formula:
    """Return the formula of the seconds that each multiplication behind adds to a wait.

    They are the slope of a straight line through the wait's curve, by least squares.
    """
    counts = depths(deepest)

    def slope(times: Times) -> Values:
        seconds = [times[named(wait, count, place)] for count in counts]
        slope, _ = np.polyfit(counts, seconds, 1)
        return slope

    return slope


def added_fraction(place: str, deepest: int) -> Formula:
    """Return the formula of what a multiplication adds to a wait for one result, as a share of what
    it adds to a wait for all.
    """
    to_one = added_by(WAIT, place, deepest)
    to_all = added_by(WAITALL, place, deepest)
    return lambda times: to_one(times) / to_all(times)


SELECTIVE = Metric(
    "added_wait_fraction",
    means="what one more behind adds to a wait for one result, over what it adds to one for all: 0 "
    "is nothing",
    limits=(0.0, 1.0),
    bands=(
        Band(
            LOWEST, "selective", "Waiting for one result did not wait for what was queued behind it"
        ),
        Band(
            0.25,
            "partly",
            "Waiting for one result waited for a part of what was launched behind it",
        ),
        Band(
            0.75, "not-selective", "Waiting for one result took as long as waiting for all of them"
        ),
    ),
)
FRACTIONS = {
    SAME: SELECTIVE,
    OTHER: replace(SELECTIVE, name="other_device_added_wait_fraction", about=OTHER),
}

LEFT = Count(
    "left_after_wait",
    "multiplications were not done when the wait returned",
    case=named(WAIT, 64, SAME),
    tally=unfinished_after_wait_for_one,
    awaits_one=True,
    metric=SELECTIVE.name,
    title="Left when a wait ends",
    bands=(
        Band(
            LOWEST,
            "not-selective",
            "No, waiting for one result waited for what was launched behind it",
        ),
        Band(
            IN_PART,
            "partly",
            "In part, waiting for one result waited for what was launched behind it, of which some "
            "was done when the wait returned",
        ),
        Band(
            MOSTLY,
            "selective",
            "Yes, waiting for one result did not wait for what was queued behind it",
        ),
    ),
)
LEFT_ELSEWHERE = replace(
    LEFT,
    name="left_after_wait_on_another_device",
    counted=OTHER,
    case=named(WAIT, 64, OTHER),
    metric=FRACTIONS[OTHER].name,
    title="",
)
WAITED_FOR_SUM = Band(
    LOWEST,
    "not-selective",
    "No, converting one result to a number waited for what was launched behind it, because the "
    "number is a sum that is launched last",
)
LEFT_AFTER_CONVERSIONS = tuple(
    replace(
        LEFT,
        name=f"left_after_conversion_{conversion.replace(' ', '_')}",
        counted=f"by converting it {conversion}",
        case=named(conversion, 64, SAME),
        metric="",
        title="",
        bands=(WAITED_FOR_SUM, *LEFT.bands[1:]) if conversion == TO_NUMBER else LEFT.bands,
    )
    for conversion in CONVERSIONS
)

EXPERIMENT = Experiment(
    name="barriers",
    question="Can Python wait for one result alone?",
    position=2,
    exercises=(
        Exercise(
            2,
            "How does waiting for one result differ from waiting for everything?",
            edition="MXNet",
        ),
    ),
    program=program,
    case=named(WAIT, 64, SAME),
    metrics=(*FRACTIONS.values(), replace(DISPATCH_FRACTION, formula=None)),
    counts=(LEFT, LEFT_ELSEWHERE, *LEFT_AFTER_CONVERSIONS),
    changes=(
        with_queue("waiting for one result should not wait for what is launched behind it"),
        without_queue(SELECTIVE.name, ("selective",), "both waits should end together"),
        LESS_NOISE,
        larger("size", "Larger matrices", "launching them, and the noise, matter less"),
    ),
    settings=OF_PRODUCTS,
    queued_case=named(WAITALL, 64, SAME),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 384}},
    curves=Curves(
        over="queued",
        quantity="seconds",
        x_title="multiplications behind the awaited one",
        y_title="seconds until the wait ended",
        log_x=False,
        caption="A flat line is a wait that does not wait for what is queued behind.",
    ),
)
