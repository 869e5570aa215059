"""Barriers: does waiting for one intermediate result wait for the work that is queued behind it?

Book: Dive into Deep Learning, "Asynchronous Computation", exercise 2 of the MXNet edition: measure the difference
between waiting for everything and waiting for one result.

Prediction: Waiting for everything takes longer by a product's time for each product that is queued. Waiting for one
result takes as long however many are queued behind it, if the engine knows values apart: on the same device, since
its queue gets to them later, and on another device, which works meanwhile. If a wait is for a device's whole queue,
only another device's work is not waited for. A synchronous engine has done everything before it can be waited for, so
both waits end at the same time.

Method: A product is launched and behind it 0, 1, 2, 4, … more of the same size, on the same device or on another one.
Then the first result is waited for, or everything. The clock runs from before the first launch, so that an engine which
computes at launch is timed alike. For each round a straight line is fitted by least squares to the seconds over the
number of products: its slope is what a queued product adds.

Look at: `added_wait_fraction`, what a queued product adds to waiting for one result as a share of what it adds to
waiting for all, with products behind it on the same device; `other_device_added_wait_fraction`, with products on
another device; and the curves of both waits.

Read: Near 0 a wait is selective: it does not wait for what is queued behind. Near 1 it is not, or nothing was queued:
the share of the time after which the launches had returned tells which. Launching takes time in either case, so the
share does not reach 0. If devices share cores, work on another device slows the awaited product too.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Annotated

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.asynchronous_computation.barriers import verdicts
from parallel_core.experiments.asynchronous_computation.waiting import Launched, time_until
from parallel_core.experiments.measuring import Units, largest_error, result_of, take_in_turn, with_parts
from parallel_core.experiments.products import normal_matrix, products, products_as_unit, size_for
from parallel_core.experiments.runner.declaration import (
    BUDGET,
    OF_PRODUCTS,
    Budget,
    Exercise,
    Experiment,
    Parameter,
    Rounds,
)
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.confidence_intervals import decide
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import countdown
from parallel_core.measurement.verdicts import dispatch_fraction

__all__ = ["EXPERIMENT", "added", "depths", "run"]

SAME, OTHER = "on the same device", "on another device"
WAIT, WAITALL = "wait", "waitall"
QUEUED = 0.8
"""If control returns before this share of the time, something was queued."""
TARGET_SECONDS, AT_ONCE = 0.04, 20
"""Seconds, and the number of products that take them: each far longer than launching it, 64 of them not long."""


def _launch(backend: Backend, x: Array, other: Array, count: int) -> Launched:
    """Launch a product of one matrix with itself and, behind it, some of another matrix."""
    return products(backend, x, 1)[0], products(backend, other, count)


def run(
    backend: Backend,
    size: Annotated[int | None, Parameter("Side of the matrices. Default: chosen for products of about 2 ms.")] = None,
    deepest: Annotated[int, Parameter("Products behind the first, at the most.")] = 64,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time both waits with up to `deepest` products queued behind the first, in powers of two, in each place.

    `size` is the matrices' side; None chooses one with which a product takes about 2 ms. A single device has no other
    place than itself. The bare time of a wait is that of what it is for, and is measured with the most products behind:
    the one product, or all of them.
    """
    left = countdown(budget)
    size = size or size_for(backend, TARGET_SECONDS, AT_ONCE, backend.devices[0])
    queued = depths(deepest)
    x = normal_matrix(backend, size, backend.devices[0])
    places = {SAME: x}
    if len(backend.devices) > 1:
        places[OTHER] = normal_matrix(backend, size, backend.devices[1])
    waits: dict[str, Callable[[Array], object]] = {WAIT: backend.wait, WAITALL: lambda _: backend.waitall()}
    timings = {
        _label(wait, count, place): partial(time_until, backend, do_wait, partial(_launch, backend, x, other, count))
        for count in queued
        for place, other in places.items()
        for wait, do_wait in waits.items()
    }
    units = Units(
        {
            WAIT: products_as_unit(backend, x, 1),
            SAME: products_as_unit(backend, x, 1 + deepest),
            **({OTHER: products_as_unit(backend, places[OTHER], deepest)} if OTHER in places else {}),
        },
        {
            **{_label(WAIT, deepest, place): (WAIT,) for place in places},
            _label(WAITALL, deepest, SAME): (SAME,),
            **({_label(WAITALL, deepest, OTHER): (WAIT, OTHER)} if OTHER in places else {}),
        },
    )
    cases = take_in_turn(backend, timings, rounds, units=units, budget=left(0.9))
    slopes = {place: added(cases, queued, place) for place in places}

    one, everything = (cases[_label(wait, deepest, SAME)] for wait in waits)
    dispatched = dispatch_fraction(everything)
    # If nothing is queued there is nothing to wait for, and either of the two may come out a little faster.
    if decide(dispatched, QUEUED) == 0:
        cases[everything.name] = with_parts(everything, (one,))
    explanation, *elsewhere = (verdicts.verdict(slopes[place], place, dispatched) for place in places)
    deepest_waits = verdicts.about_deepest(one, everything, deepest, SAME)
    return result_of(
        "barriers",
        backend,
        parameters={"size": size, "deepest": deepest, "rounds": rounds, "budget": budget},
        cases=list(cases.values()),
        metrics={
            "added_wait_fraction": slopes[SAME].fraction.estimate,
            "added_to_wait_seconds": median(slopes[SAME].to_wait),
            "added_to_waitall_seconds": median(slopes[SAME].to_waitall),
            "dispatch_fraction": dispatched.estimate,
            **({"other_device_added_wait_fraction": slopes[OTHER].fraction.estimate} if OTHER in slopes else {}),
        },
        intervals={
            "added_wait_fraction": slopes[SAME].fraction,
            "dispatch_fraction": dispatched,
            **({"other_device_added_wait_fraction": slopes[OTHER].fraction} if OTHER in slopes else {}),
        },
        explanation=explanation,
        answer=Answer(
            (deepest_waits, *elsewhere),
            verdicts.what_would_change(backend, slopes[SAME], slopes.get(OTHER), dispatched, size),
        ),
        error=largest_of([_error_of(backend, x, other, deepest) for other in places.values()]),
        compared="products",
        series={
            "queued": tuple(float(count) for count in queued),
            **{
                f"seconds {wait}, {place}": tuple(cases[_label(wait, count, place)].median for count in queued)
                for place in places
                for wait in waits
            },
        },
    )


def depths(deepest: int) -> tuple[int, ...]:
    """List 0, the powers of two below `deepest`, and `deepest`."""
    return (0, *(2**power for power in range((deepest - 1).bit_length())), deepest)


def _label(wait: str, count: int, place: str) -> str:
    return f"{wait}, {count} behind {place}"


def added(cases: Mapping[str, Case], queued: Sequence[int], place: str) -> verdicts.Added:
    """Lay straight lines through both waits' seconds over the number of queued products, and return their slopes."""

    def slopes(wait: str) -> tuple[float, ...]:
        seconds = [cases[_label(wait, count, place)].seconds for count in queued]
        return tuple(float(slope) for slope in np.polyfit(queued, seconds, 1)[0])

    return verdicts.Added(slopes(WAIT), slopes(WAITALL))


def _error_of(backend: Backend, x: Array, other: Array, count: int) -> float:
    """Return the relative error of an awaited product with others queued behind it, and of the last of those."""
    awaited, others = _launch(backend, x, other, count)
    return largest_error(
        map(backend.to_numpy, (awaited, others[-1])), [a @ a for a in map(backend.to_numpy, (x, other))]
    )


EXPERIMENT = Experiment(
    name="barriers",
    position=2,
    exercises=(Exercise(2, "How does waiting for one result differ from waiting for everything?", edition="MXNet"),),
    run=run,
    case="wait, 64 behind on the same device",
    metric="added_wait_fraction",
    metric_means="what a product behind adds to a wait for one result, over what it adds to one for all: 0 is nothing",
    metric_limits=(0.0, 1.0),
    settings=OF_PRODUCTS,
    queued_case="waitall, 64 behind on the same device",
    calibrated=("size",),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 384}},
    curves=Curves(
        over="queued",
        quantity="seconds",
        x_title="products behind the awaited one",
        y_title="seconds until the wait ended",
        log_x=False,
        caption="A flat line is a wait that leaves alone what is queued behind.",
    ),
)
