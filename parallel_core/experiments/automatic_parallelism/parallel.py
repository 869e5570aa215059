"""Automatic parallelism: do two devices work at the same time when nobody tells them to?

Book: Dive into Deep Learning, "Automatic Parallelism".

Prediction: The products on one device do not depend on those on another, so an engine with a queue for each device runs
them at the same time, and all together take as long as one device alone.

Method: The same 50 products run on one device after the other, with a wait in between, and then on all devices without
one; nothing else says that they may overlap. Each device has cores and threads of its own.

Look at: `parallel_speedup`, the sum of the devices' times alone over their time together.

Read: At 1 the devices take turns; the number of devices is the most that can be reached. Less than that, on an
asynchronous engine, means that the devices share something: cores, memory, or a resource of which the framework has
only one.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from humanize import metric

from backends import Array, Backend
from parallel_core.experiments.changes import LESS_NOISE, more_cores, with_queue, without_queue
from parallel_core.experiments.experiment import BUDGET, OF_PRODUCTS, Budget, Experiment, Parameter, Rounds
from parallel_core.experiments.measuring import (
    Units,
    largest_error,
    refuse_single_device,
    result_of,
    time_in_turn,
    with_parts,
)
from parallel_core.experiments.products import PRODUCTS, normal_matrix, products, products_as_unit, size_for_run
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import countdown
from parallel_core.measurement.verdicts import over_rounds

__all__ = ["EXPERIMENT", "about_times", "run", "speedup_of", "verdict", "what_would_change"]

TOGETHER = "on all together"
TURNS, OVERLAP = 0.8, 1.25
"""Between these speed-ups the devices took turns, give or take."""


def run(
    backend: Backend,
    size: Annotated[int | None, Parameter("Side of the matrices. Default: chosen for runs of about 0.2 s.")] = None,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time 50 products on each device alone and on all together; raises RequestError for a single device."""
    refuse_single_device(backend, "parallel", "compares devices")
    left = countdown(budget)
    size = size or size_for_run(backend)
    matrices = [normal_matrix(backend, size, device) for device in backend.devices]
    names = [f"on {device} alone" for device in backend.devices]

    def run_all() -> list[list[Array]]:
        return [products(backend, x) for x in matrices]

    work = {name: partial(products, backend, x) for name, x in zip(names, matrices, strict=True)}
    units = Units(
        {name: products_as_unit(backend, x) for name, x in zip(names, matrices, strict=True)},
        {**{name: (name,) for name in names}, TOGETHER: names},
    )
    cases = time_in_turn(backend, {**work, TOGETHER: run_all}, rounds, units=units, budget=left(0.9))
    *parts, together = cases.values()

    source = backend.to_numpy(matrices[0])
    speedup = speedup_of(parts, together)
    return result_of(
        "parallel",
        backend,
        parameters={"size": size, "products": PRODUCTS, "rounds": rounds, "budget": budget},
        cases=(*parts, with_parts(together, parts)),
        metrics={"parallel_speedup": speedup.estimate},
        intervals={"parallel_speedup": speedup},
        limits={"parallel_speedup": len(parts)},
        explanation=verdict(speedup, len(parts)),
        answer=Answer((about_times(parts, together),), what_would_change(backend, speedup, size)),
        error=largest_error([backend.to_numpy(made[-1]) for made in run_all()], [source @ source] * len(matrices)),
        compared="products",
    )


def speedup_of(parts: Sequence[Case], together: Case) -> Interval:
    """Return how many times as fast all devices together are as one after the other."""
    return over_rounds(lambda *each: sum(each[:-1]) / each[-1], *(case.seconds for case in (*parts, together)))


def verdict(speedup: Interval, count: int) -> str:
    """Say whether `count` devices worked at the same time."""
    told = f"together was {with_bounds(speedup)} × as fast as one after the other"
    # Half-way between no overlap (1) and a full one (count).
    match decide(speedup, TURNS, OVERLAP, (1 + count) / 2):
        case 3:
            return f"The devices worked at the same time: {told}."
        case 2:
            return f"The devices overlapped in part: {told}, of {count} × possible."
        case 1:
            return f"The devices took turns: {told}."
    match decide(speedup, 1.0):
        case 1:
            return f"The devices overlapped, and the noise leaves open how far: {told}, of {count} × possible."
        case 0:
            return f"The devices got in each other's way: {told}."
    return f"The noise leaves open whether the devices worked at the same time: {told}."


def about_times(parts: Sequence[Case], together: Case) -> str:
    """Say how long the devices took one after the other, and together."""
    added = sum(part.median for part in parts)
    return (
        f"One after the other {len(parts)} devices took {metric(added, 's')} for {PRODUCTS} products each, all "
        f"together {metric(together.median, 's')}."
    )


def what_would_change(backend: Backend, speedup: Interval, size: int) -> str:
    """Say what would let the devices work at the same time, or no longer."""
    if backend.engine == "sync":
        return with_queue(backend, "the devices should work at the same time")
    if decide(speedup, TURNS, OVERLAP, (1 + len(backend.devices)) / 2) == 3:
        return without_queue("the devices should take turns, with a speed-up of 1.0 ×")
    if decide(speedup, TURNS, OVERLAP) is None and decide(speedup, 1.0) is None:
        return LESS_NOISE
    shared = f"Larger products (--size {2 * size}), if launching them or a lock is what the devices share."
    return more_cores(backend) or shared


EXPERIMENT = Experiment(
    name="parallel",
    position=1,
    run=run,
    case=TOGETHER,
    metric="parallel_speedup",
    metric_means="how many times as fast the devices are together as one after the other: 1 is taking turns",
    settings=OF_PRODUCTS,
    calibrated=("size",),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
)
