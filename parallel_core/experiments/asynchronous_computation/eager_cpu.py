"""Eager on a CPU: can asynchrony be seen on a CPU, on a framework that is eager and on others?

Book: Dive into Deep Learning, "Asynchronous Computation", exercise 1 of the PyTorch edition: on the CPU, benchmark the
same products of matrices as in the section. Can asynchrony via the backend still be observed?

Prediction: It depends on who queues. If an operator runs on the calling thread, as an eager framework's does on a CPU,
control returns when the product is done, whatever the size. If a framework has an engine of its own, or a backend gives
it worker threads, control returns as soon as the product is queued. The time until all is done is about the same:
asynchrony moves the work and does not shorten it.

Method: The book's ten products of 1000 × 1000 normal matrices (smaller ones if the budget of seconds is too short), on
the first device: the time until control returns and the time until all is done. Beside the backend that was asked for,
every other framework and engine does the same in a fresh process each, one after the other, with as many threads,
because a framework reads its engine once.

Look at: `dispatch_fraction`, the first time as a share of the second, and both times of every framework and engine in
one table.

Read: Near 1 nothing was queued, near 0 the products were. On the asynchronous engine the scheduler's note says whose
queue it is: the framework's own, or this program's threads. Times of different processes differ by what the machine did
meanwhile: `compare` sets them side by side in rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, get_args

from humanize import metric

import backends
from backends import Backend, Engine
from parallel_core.errors import MeasurementError, RequestError
from parallel_core.experiments.asynchronous_computation.ten_products import (
    PRODUCTS_CASE,
    REPEATS,
    as_unit,
    draw,
    error_of_products,
    multiply,
)
from parallel_core.experiments.changes import LESS_NOISE, with_queue, without_queue
from parallel_core.experiments.measuring import FEWEST_TIMINGS, result_of, time_in_turn
from parallel_core.experiments.products import largest_size
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
from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import countdown
from parallel_core.measurement.verdicts import dispatch_fraction, in_percent
from parallel_core.system.formatting import figure, listed

__all__ = [
    "EXPERIMENT",
    "OTHERS",
    "about_contrasts",
    "about_times",
    "about_variants",
    "contrasts",
    "run",
    "verdict",
    "what_would_change",
]

AGAINST = Parameter(
    "In fresh processes beside it: NAME:ENGINE with commas between them, all others, or none.", metavar="NAMES"
)

SIZE = 1000
STARTING = 0.6
"""The share of the time of a process of its own that goes by until it measures, about: starting, and importing."""
SLOWER = 2
"""How many times as long as here a product may take on one of the others, about."""
OTHERS, NONE = "others", "none"
EARLY, LATE = 0.2, 0.8
"""If control returns before this share of the time the products are queued, and after that one they are not."""


def run(
    backend: Backend,
    size: Annotated[int | None, Parameter("Side of the matrices. Default: 1000, or what the budget allows.")] = None,
    against: Annotated[str, AGAINST] = OTHERS,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time ten products until control returns and until they are done, in other processes on other engines too.

    `against` names the contrasts: `NAME:ENGINE` with commas between them, `others` for
    all that are registered, `none` for none. One that cannot run is a note. Raises RequestError for one that is not
    known, and for the backend itself.
    """
    others = contrasts(against, (backend.name, backend.engine))
    left = countdown(budget)
    # In each process the products are timed twice: queued, and as one unit.
    share = (1 - STARTING if others else 0.9) * budget / (1 + len(others))
    if size is None:
        slowest = SLOWER if others else 1
        size = largest_size(backend, share / FEWEST_TIMINGS / (2 * REPEATS) / slowest, SIZE)
    drawn = draw(size)
    loaded = [backend.asarray(a, backend.devices[0]) for a in drawn]
    work = {PRODUCTS_CASE: lambda: multiply(backend, loaded)}
    mine = time_in_turn(backend, work, rounds, units=as_unit(backend, loaded), budget=share)[PRODUCTS_CASE]
    shared = {
        "devices": len(backend.devices),
        "device-kind": backend.devices[0].kind,
        "threads": backend.threads_per_device,
        "size": size,
        "rounds": rounds,
        "against": NONE,
    }
    cases: dict[str, Case] = {}
    failures = []
    for place, (name, engine) in enumerate(others):
        side = f"{name} {engine}"
        tell(f"{side}, in a process of its own", place / len(others))
        of_this = (1 - STARTING) * left(1.0) / (len(others) - place)
        if of_this <= 0:
            failures.append(
                f"No contrast with {side}: the budget of {budget:g} s was spent before (--budget gives more)"
            )
            continue
        try:
            cases[side] = _case_elsewhere({"backend": name, "engine": engine, "budget": of_this, **shared})
        except (RequestError, MeasurementError) as reason:
            failures.append(f"No contrast with {side}: {reason}")
    mine_fraction = dispatch_fraction(mine)
    fractions = {side: dispatch_fraction(case) for side, case in cases.items()}
    intervals = {
        "dispatch_fraction": mine_fraction,
        **{f"{side.replace(' ', '_')}_dispatch_fraction": found for side, found in fractions.items()},
    }
    return result_of(
        "eager-cpu",
        backend,
        parameters={"size": size, "against": against, "rounds": rounds, "budget": budget},
        cases=(mine, *(replace(case, name=f"{PRODUCTS_CASE}, {side}") for side, case in cases.items())),
        metrics={name: interval.estimate for name, interval in intervals.items()},
        intervals=intervals,
        explanation=verdict(mine_fraction),
        answer=Answer(
            (about_times(mine, size), *about_contrasts(fractions)), what_would_change(backend, mine_fraction)
        ),
        notes=(
            f"Scheduler: {backend.scheduler}.",
            *about_variants(backend.variants, tuple(cases)),
            *failures,
        ),
        error=error_of_products(backend, loaded, drawn),
        compared="products",
    )


def contrasts(against: str, measured: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """List the pairs of backend and engine to measure elsewhere; `measured` is the one that is measured here."""
    known = [(name, engine) for name in backends.names() for engine in get_args(Engine)]
    if against == NONE:
        return ()
    if against == OTHERS:
        return tuple(pair for pair in known if pair != measured)
    by_name = {f"{name}:{engine}": (name, engine) for name, engine in known}
    asked = [part.strip() for part in against.split(",")]
    for name in asked:
        if name not in by_name:
            raise RequestError(f"unknown contrast {name!r} (known: {OTHERS}, {NONE}, {', '.join(by_name)})")
        if by_name[name] == measured:
            raise RequestError(f"the contrast {name!r} is what is measured: leave it out of --against")
    return tuple(dict.fromkeys(by_name[name] for name in asked))


def _case_elsewhere(options: Mapping[str, str | float]) -> Case:
    """Measure the same in a fresh process; return its case. Raises MeasurementError if its result is invalid."""
    result = measure_elsewhere("eager-cpu", options)
    if result.problems:
        raise MeasurementError(f"its result is invalid: {result.problems[0]}")
    return next(case for case in result.cases if case.name == PRODUCTS_CASE)


def verdict(fraction: Interval) -> str:
    """Say whether asynchrony was observed, by the share of the time after which control returned."""
    openings = {0: "Asynchrony", 1: "Asynchrony in part", 2: "No asynchrony", None: "The noise leaves open how far"}
    opening = openings[decide(fraction, EARLY, LATE)]
    return f"{opening}: control returned after {in_percent(fraction)} of the time until the products were done."


def about_contrasts(fractions: Mapping[str, Interval]) -> tuple[str, ...]:
    """Say which of the others queued the products, and after which share of the time control was back with each.

    Nothing if there are none.
    """
    kinds = {
        "queued them": 0,
        "queued them in part": 1,
        "had them done when control returned": 2,
        "did what the noise leaves open": None,
    }
    places = {side: decide(share, EARLY, LATE) for side, share in fractions.items()}
    found = {did: [side for side in places if places[side] == place] for did, place in kinds.items()}
    clauses = [
        f"{listed([f'{side} ({figure(100 * fractions[side].estimate)}%)' for side in sides])} {did}"
        for did, sides in found.items()
        if sides
    ]
    return (f"The same products elsewhere: {'; '.join(clauses)}.",) if clauses else ()


def about_times(products: Case, size: int) -> str:
    """Say when control returned and when the products were done."""
    return (
        f"Control was back after {metric(products.dispatch_median, 's')}, and the {REPEATS} products of {size} × "
        f"{size} matrices were done after {metric(products.median, 's')}."
    )


def what_would_change(backend: Backend, fraction: Interval) -> str:
    """Say what would let control return later, if asynchrony was observed, or earlier."""
    place = decide(fraction, EARLY, LATE)
    if place is None:
        return LESS_NOISE
    if backend.engine == "sync":
        return with_queue(backend, "control should return before the products are done")
    if place == 0:
        return without_queue("control should return when the products are done, after about 100% of the time")
    return "Larger products (--size 2000): computing them takes longer, and launching them does not."


def about_variants(variants: Sequence[str], sides: Sequence[str]) -> tuple[str, ...]:
    """Say that contrasts have no variants, if the backend itself has some."""
    return (f"{listed(sides)} ran without {listed(variants)}.",) if variants and sides else ()


EXPERIMENT = Experiment(
    name="eager-cpu",
    position=4,
    exercises=(Exercise(1, "Can asynchrony be observed on a CPU?", edition="PyTorch"),),
    run=run,
    case=PRODUCTS_CASE,
    metric="dispatch_fraction",
    metric_means="the share of the products' time after which control returned: near 0 they were queued",
    metric_limits=(0.0, 1.0),
    settings=OF_PRODUCTS,
    calibrated=("size",),
    options={"full": {"rounds": 5, "against": "none"}, "quick": {"rounds": 3, "size": 500, "against": "none"}},
)
