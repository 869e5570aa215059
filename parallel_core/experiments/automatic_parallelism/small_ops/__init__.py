"""Small operations: when single operations are small, does parallelism help even on one CPU or GPU?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 2.

Prediction: A small product cannot fill the cores of a CPU, so threads within it gain nothing, but several products at
once can each have a core. The smallest gain nothing in either way: Python launches one at a time, and launching takes
longer than computing. Large products fill all cores by themselves; several at once are then as good as threads.

Method: The same number of independent products, of sizes from 8 to 1024 if the budget of seconds goes so far, is
launched on one device and spread over all: the logical devices of a CPU are parts of it, with a queue and a share of
the cores each. In a fresh process one device gets the threads of all (on CPUs). Times are of one product of the many
that are launched together.

Look at: the speed-up over one device with its share of the threads, by `all devices` and by `all threads`; its largest
value, `largest_speedup`, and the size at which it is reached; `crossing_size`, from which on all devices are faster
than one at every size, and at half of the sizes or more beyond the noise (interpolated between logarithms of sizes).

Read: 1 is no gain; the number of devices is the most that cores can give. At sizes at which `all devices` lies above
`all threads`, parallel launches help more than parallel operators: the exercise's claim. If control returns only
shortly before all is done, launching is the limit. The largest of several noisy figures is too large by some noise. The
threads were measured in another process, at another time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from backends import Array, Backend
from parallel_core.errors import RequestError
from parallel_core.experiments.automatic_parallelism.small_ops import verdicts
from parallel_core.experiments.measuring import (
    FEWEST_TIMINGS,
    Units,
    largest_error,
    result_of,
    run_elsewhere,
    time_in_turn,
)
from parallel_core.experiments.products import normal_matrix, product_seconds, products_as_unit
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
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import countdown
from parallel_core.measurement.verdicts import times_as_long

__all__ = ["EXPERIMENT", "SIZES", "run"]

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
TARGET_SECONDS = 0.01
LEAST, MOST = 2, 2000
"""Bounds on the number of products for each device."""
STARTING = 0.5
"""The share of the time of a process of its own that goes by until it measures, about: starting, and importing."""
ONE, ALL, THREADS = "one device", "all devices", "all threads"

Timed = Mapping[str, Sequence[Case]]
"""For each way of launching, a case for each size; without cases if it was not timed."""


def _products(backend: Backend, matrices: Sequence[Array], count: int) -> list[Array]:
    """Launch `count` times, in turn, a product of each matrix with itself."""
    return [backend.launch(backend.ops.matmul, x, x) for _ in range(count) for x in matrices]


def run(
    backend: Backend,
    sizes: Annotated[
        Sequence[int] | None, Parameter("Sides of the matrices. Default: 8, 16, … 1024, or what the budget allows.")
    ] = None,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time independent products on one device, spread over all, and on one with the threads of all, for each size.

    With a single device, only its own products are timed. Raises RequestError for no size.
    """
    if sizes is not None and not sizes:
        raise RequestError("no size to multiply matrices of: --sizes 8,64,512, say")
    left = countdown(budget)
    elsewhere = len(backend.devices) > 1 and all(device.kind == "cpu" for device in backend.devices)
    counts = _counts(backend, sizes, left(0.5 if elsewhere else 0.8))
    sizes = tuple(counts)
    timed, error = _time_here(backend, counts, rounds, left(0.5 if elsewhere else 0.9)), _error_of(backend, sizes)
    if elsewhere:
        threads = len(backend.devices) * backend.threads_per_device
        tell("one device with the threads of all, in a process of its own", 0.0)
        # A process that has the least of budgets takes one round.
        of_this = max(0.01, (1 - STARTING) * left(0.95))
        options: dict[str, str | float] = {"sizes": ",".join(map(str, sizes)), "rounds": rounds, "budget": of_this}
        result = run_elsewhere("small-ops", backend, threads, options)
        # A case is called after its way and its size.
        renamed = [replace(case, name=case.name.replace(ONE, THREADS)) for case in result.cases]
        timed, error = {**timed, THREADS: renamed}, largest_of([error, result.checks["max_relative_error"]])

    alone, spread, threaded = (timed[way] for way in (ONE, ALL, THREADS))
    speedups = {way: _ratios(alone, timed[way]) for way in (ALL, THREADS) if timed[way]}
    launching = verdicts.about_launching(sizes, alone, backend.engine)
    return result_of(
        "small-ops",
        backend,
        parameters={"sizes": ",".join(map(str, sizes)), "rounds": rounds, "budget": budget},
        cases=(*alone, *spread, *threaded),
        metrics=_figures(sizes, alone, spread),
        intervals=_largest_speedup(alone, spread),
        limits={"largest_speedup": len(backend.devices)} if spread else {},
        explanation=verdicts.verdict(sizes, alone, spread, len(backend.devices)),
        answer=Answer(
            (
                *verdicts.about_losses(sizes, alone, spread),
                *(verdicts.about_threads(sizes, spread, threaded) or launching),
            ),
            verdicts.what_would_change(backend, sizes, alone, spread),
        ),
        notes=launching if threaded else (),
        error=error,
        compared="products",
        series={
            "size": tuple(map(float, sizes)),
            "product_seconds": tuple(case.median for case in alone),
            **{f"speedup {way}": values for way, values in speedups.items()},
        },
    )


def _counts(backend: Backend, wanted: Sequence[int] | None, budget: float) -> dict[int, int]:
    """Return how many products of each size to time on a device; without wanted sizes, of those that the budget allows.

    The budget is of seconds for the fewest rounds that allow a verdict.
    """
    left = countdown(budget)
    counts: dict[int, int] = {}
    seconds = taken = 0.0
    for size in sorted(set(wanted or SIZES)):
        tell(f"choosing how many products of size {size}", size / max(wanted or SIZES))
        # Twice the side takes eight times as long: what is expensive is timed less often.
        few = seconds > TARGET_SECONDS / 8
        seconds = product_seconds(backend, size, backend.devices[0], 1 if few else 5)
        count = min(MOST, max(LEAST, round(TARGET_SECONDS / seconds)))
        # On one device and spread over all, queued and as units.
        taken += FEWEST_TIMINGS * 4 * len(backend.devices) * count * seconds
        if wanted is None and counts and taken > left(1.0):
            break
        counts[size] = count
    return counts


def _time_here(backend: Backend, counts: Mapping[int, int], rounds: int, budget: float) -> Timed:
    """Time products of each size on the first device and, if there are several, spread over all."""
    work: dict[str, Callable[[], object]] = {}
    repeats = {}
    units: dict[str, Callable[[], object]] = {}
    of: dict[str, list[str]] = {}
    for size, count in counts.items():
        matrices = [normal_matrix(backend, size, device) for device in backend.devices]
        places = {ONE: matrices[:1] * len(matrices)} | ({ALL: matrices} if len(matrices) > 1 else {})
        for way, spread in places.items():
            work[name := f"{way}, size {size}"] = partial(_products, backend, spread, count)
            repeats[name] = count * len(matrices)
            of[name] = [name]
        units[f"{ONE}, size {size}"] = products_as_unit(backend, matrices[0], count * len(matrices))
        if len(matrices) > 1:
            own = {f"{device}, size {size}": x for device, x in zip(backend.devices, matrices, strict=True)}
            units |= {place: products_as_unit(backend, x, count) for place, x in own.items()}
            of[f"{ALL}, size {size}"] = list(own)
    cases = time_in_turn(backend, work, rounds, repeats, Units(units, of), budget).values()
    return {way: [case for case in cases if case.name.startswith(way)] for way in (ONE, ALL, THREADS)}


def _error_of(backend: Backend, sizes: Sequence[int]) -> float:
    loaded = [normal_matrix(backend, size, device) for size in sizes for device in backend.devices]
    made = _products(backend, loaded, 1)
    return largest_error(map(backend.to_numpy, made), [x @ x for x in map(backend.to_numpy, loaded)])


def _ratios(slow: Sequence[Case], fast: Sequence[Case]) -> tuple[float, ...]:
    """Return how many times faster the second cases are than the first, size by size."""
    return tuple(one.median / other.median for one, other in zip(slow, fast, strict=True))


def _largest_speedup(alone: Sequence[Case], spread: Sequence[Case]) -> dict[str, Interval]:
    """Return the interval of the largest speed-up; nothing without several devices."""
    if not spread:
        return {}
    pair = max(zip(alone, spread, strict=True), key=lambda pair: pair[0].median / pair[1].median)
    return {"largest_speedup": times_as_long(*pair)}


def _figures(sizes: Sequence[int], alone: Sequence[Case], spread: Sequence[Case]) -> dict[str, float]:
    """Return the largest speed-up and its size, and the crossing if there is one; without several devices, 1."""
    if not spread:
        return {"largest_speedup": 1.0}
    largest, size = max(zip(_ratios(alone, spread), sizes, strict=True))
    crossing = verdicts.crossing_size(sizes, alone, spread)
    metrics = {"largest_speedup": largest, "largest_speedup_size": float(size)}
    return metrics if crossing is None else {**metrics, "crossing_size": crossing}


EXPERIMENT = Experiment(
    name="small-ops",
    position=4,
    exercises=(Exercise(2, "Does parallelism help on a single device when operations are small?"),),
    run=run,
    case="all devices, size 128",
    metric="largest_speedup",
    metric_means="how many times as fast all devices are as one, at the size at which they gain most: 1 is no gain",
    settings=OF_PRODUCTS,
    queued_case="one device, size 128",
    calibrated=("sizes",),
    curves=Curves(
        over="size",
        quantity="speedup",
        x_title="side of the matrices",
        y_title="speed-up over one device",
        caption="How many times faster the same products are when spread over all devices, and on one "
        "device with the threads of all, than on one device with its own.",
    ),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "sizes": "8,32,128,256"}},
)
