"""Small operations: when single operations are small, does parallelism help even on one CPU or GPU?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 2.

Prediction: A small matrix multiplication cannot fill the cores of a CPU, so threads within it gain
nothing, but several at once can each have a core. The smallest gain nothing in either way: Python
launches one at a time, and launching takes longer than computing. Large ones fill all cores by
themselves; several at once are then as good as threads.

Method: The same number of independent matrix multiplications, of sizes from 8 to 1024 if the budget
of seconds goes so far, is launched on one device and spread over all: the logical devices of a CPU
are parts of it, with a queue and a share of the cores each. In a fresh process one device gets the
threads of all (on CPUs). Times are of one multiplication of the many that are launched together.
Small are the sizes up to 128.

Look at: how many multiplications of a device ran while another device computed, at size 128, or at
the largest if that is not among the sizes, in repetitions that the framework's profiler recorded.
By the clock, medians over the small sizes: `small_speedup`, of all devices over one device with its
share of the threads; `small_advantage_over_threads`, the same over one device with the threads of
all; `small_dispatch_fraction`, the share of one device's time after which control returns. Of all
sizes: `largest_speedup` with its size, and `crossing_size`, from which on all devices are faster
than one at every size, and at half of the sizes or more beyond the noise (interpolated between
logarithms of sizes).

Read: Devices that take turns count 0. They may run at the same time and gain nothing, where a lock,
or launching, is the limit. Of the speed-ups 1 is no gain; the number of devices is the most that
cores can give. An advantage over threads of more than 1 means that parallel launches help more than
parallel operators: the exercise's claim. The threads were measured in another process, at another
time. If control returns only shortly before all is done, launching is the limit. The largest of
several noisy figures is too large by some noise.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from backends import Array
from parallel_core.experiments.asynchronous_computation.asynchrony import dispatch_fraction
from parallel_core.experiments.asynchronous_computation.cost_model import passes_one
from parallel_core.experiments.runner.changes import LESS_NOISE, MORE_CORES, Change, with_queue
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Exercise, Experiment
from parallel_core.experiments.runner.formulas import median_of, ratio
from parallel_core.experiments.runner.metrics import (
    LOWEST,
    Band,
    DirectAnswer,
    Metric,
    bands_of_gain,
    gained_on_devices,
)
from parallel_core.experiments.runner.parameters import Chosen
from parallel_core.experiments.runner.tallies import computed_beside_another_device
from parallel_core.experiments.runner.trial import Options, Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.experiments.workloads import (
    FEWEST_TIMINGS,
    multiplications,
    multiplied,
    seconds_of_one,
)
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.over_rounds import BETWEEN_PROCESSES, times_as_long
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.system.formatting import figure

LARGEST_SMALL = 128
TARGET_SECONDS = 0.01
"""About how many seconds a device multiplies at each size, with 2 to 2000 multiplications."""
ONE, ALL, THREADS = "one device", "all devices", "all threads"
SIZES = Chosen("Sides of the matrices. Default: 8, 16, … 1024, or what the budget allows.")


def program(trial: Trial, sizes: Annotated[Sequence[int] | None, SIZES] = None) -> None:
    """Time multiplications of each size on one device, on all, and on one with all threads."""
    devices = trial.devices
    are_cpus = all(device.kind == "cpu" for device in devices)
    in_another_process = len(devices) > 1 and are_cpus
    counts = counts_of(trial, sizes, 0.5 if in_another_process else 0.8)
    written = ",".join(map(str, counts))
    trial.parameters["sizes"] = written
    for size, count in counts.items():
        matrices = [trial.normal(size, device) for device in devices]
        repeats = count * len(devices)
        alone = multiplications(trial, matrices[0], repeats, devices[0])
        trial.time(f"{ONE}, size {size}", alone, repeats=repeats)
        if len(devices) > 1:
            spread = Work(partial(spread_over, trial, matrices, count))
            shares = [
                multiplications(trial, matrix, count, device)
                for matrix, device in zip(matrices, devices, strict=True)
            ]
            trial.time(f"{ALL}, size {size}", spread, bare=shares, repeats=repeats)
        factor = trial.backend.to_numpy(matrices[0])
        expected = [factor @ factor] * len(matrices)
        trial.check("products", spread_over(trial, matrices, 1), expected)
    trial.run(0.5 if in_another_process else 0.9)
    if in_another_process:
        tell("one device with the threads of all, in a separate process", 0.0)
        options: Options = {
            "threads": len(devices) * trial.backend.threads_per_device,
            "sizes": written,
        }

        trial.add_elsewhere(
            "products by the threads of all",
            "small-ops",
            options,
            lambda case: case.replace(ONE, THREADS),
            share=0.95,
        )
    find_figures(trial, tuple(counts))


def counts_of(trial: Trial, wanted: Sequence[int] | None, share: float) -> dict[int, int]:
    """Return how many multiplications to time on each device, by size.

    The sizes are the `wanted` ones, or else those at which the fewest rounds for a verdict fit into
    a `share` of the budget.
    """
    counts: dict[int, int] = {}
    seconds = total_seconds = 0.0
    sizes = sorted(set(wanted or (8, 16, 32, 64, 128, 256, 512, 1024)))
    for size in sizes:
        tell(f"choosing how many multiplications of size {size}", size / sizes[-1])
        # Twice the side takes eight times as long, so a large size is probed only once.
        will_be_long = 8 * seconds > TARGET_SECONDS
        seconds = seconds_of_one(trial, size, 1 if will_be_long else 5)
        count = min(2000, max(2, round(TARGET_SECONDS / seconds)))
        # A round times on one device and spread over all, queued and as units.
        seconds_of_round = 4 * len(trial.devices) * count * seconds
        total_seconds += FEWEST_TIMINGS * seconds_of_round
        if wanted is None and counts and total_seconds > trial.left(share):
            break
        counts[size] = count
    return counts


def spread_over(trial: Trial, matrices: Sequence[Array], count: int) -> list[Array]:
    """Launch `count` multiplications on each device, in turn; return all products."""
    products: list[Array] = []
    for _ in range(count):
        for matrix in matrices:
            products += multiplied(trial, matrix)
    return products


def find_figures(trial: Trial, sizes: Sequence[int]) -> None:
    """Find the figures over the small sizes and over all sizes, and the curves."""
    small_sizes = [size for size in sizes if size <= LARGEST_SMALL or size == sizes[0]]
    # The names of cases end so.
    endings = [f", size {size}" for size in small_sizes]
    speedup = median_of(ratio(ONE + ending, ALL + ending) for ending in endings)
    trial.found_by(SPEEDUP.name, speedup)
    over_threads = median_of(ratio(THREADS + ending, ALL + ending) for ending in endings)
    trial.found_by(OVER_THREADS.name, over_threads, noise=BETWEEN_PROCESSES)
    if trial.backend.engine == "async":
        launching = median_of(dispatch_fraction(ONE + ending) for ending in endings)
        trial.found_by(LAUNCHING.name, launching)
    alone = _cases_of(trial, ONE)
    spread = _cases_of(trial, ALL)
    threaded = _cases_of(trial, THREADS)
    trial.described["series"] = {
        "size": tuple(float(size) for size in sizes),
        "product_seconds": tuple(case.median for case in alone),
    }
    for kind, cases in ((ALL, spread), (THREADS, threaded)):
        if cases:
            trial.points[kind] = dict(zip(sizes, speedups_over(alone, cases), strict=True))
    if not spread:
        return
    largest = max(sizes, key=trial.points[ALL].__getitem__)
    trial.found_by(LARGEST.name, ratio(f"{ONE}, size {largest}", f"{ALL}, size {largest}"))
    trial.found("largest_speedup_size", largest)
    trial.found("crossing_size", crossing_size(sizes, alone, spread))


def _cases_of(trial: Trial, kind: str) -> list[Case]:
    """Return the cases whose names begin with `kind` (ONE, ALL or THREADS), by ascending size."""
    return [case for case in trial.cases.values() if case.name.startswith(kind)]


def speedups_over(alone: Sequence[Case], spread: Sequence[Case]) -> list[float]:
    """Return, for each size, the time on one device over the time spread over several."""
    return [
        of_one.median / of_several.median for of_one, of_several in zip(alone, spread, strict=True)
    ]


def crossing_size(
    sizes: Sequence[int], alone: Sequence[Case], spread: Sequence[Case]
) -> float | None:
    """Return the size from which several devices are faster than one at every size, or None.

    The size lies between the last one at which they are not faster and the next one. At half of the
    sizes from there on, or more, they must be faster beyond the noise.
    """
    speedups = speedups_over(alone, spread)
    first_faster = 0
    for number, speedup in enumerate(speedups):
        if speedup <= 1:
            first_faster = number + 1
    remaining = len(sizes) - first_faster
    surely_faster = 0
    for number in range(first_faster, len(sizes)):
        share_of_time = times_as_long(spread[number], alone[number], among=remaining)
        if decide(share_of_time, 1.0) == 0:
            surely_faster += 1
    if not surely_faster or 2 * surely_faster < remaining:
        return None
    if first_faster == 0:
        return float(sizes[0])
    return passes_one(sizes, speedups)


def from_which_size(result: Result) -> DirectAnswer | None:
    """Say from which size on several devices are faster than one, and what they lose below it."""
    small = result.interval(SPEEDUP.name)
    if small is None:
        return None
    largest_size = result.parameters["sizes"].rpartition(",")[2]
    devices = f"{len(result.backend['devices'])} devices"
    launching = result.interval(LAUNCHING.name)
    because = ""
    if launching is not None and launching.low >= LAUNCHING.bands[1].start:
        share = LAUNCHING.write(launching, result)
        because = f", because launching one takes {share} of its time"
    crossing = result.metrics.get("crossing_size")
    if crossing is None:
        longer = Interval(1 / small.estimate, 1 / small.high, 1 / small.low)
        return DirectAnswer(
            "no-size",
            f"At no size up to {largest_size} x {largest_size} for certain: {devices} took "
            f"{with_bounds(longer)} times as long as one for small multiplications{because}.",
        )
    largest, where = result.interval(LARGEST.name), result.metrics["largest_speedup_size"]
    assert largest is not None
    side = figure(crossing)
    return DirectAnswer(
        "from-a-size",
        f"From ~{side} x {side} on: {devices} are {with_bounds(largest)} times as fast as one at "
        f"{where:g} x {where:g}. Small multiplications gain less: {with_bounds(small)} times up to "
        f"{LARGEST_SMALL} x {LARGEST_SMALL}{because}.",
    )


SPEEDUP = Metric(
    "small_speedup",
    means="speed-up of all devices over one when operations are small: 1 is no gain",
    share=gained_on_devices,
    at_most=lambda result: len(result.backend["devices"]),
    bands=bands_of_gain(
        hindered="Several devices slowed small operations down",
        serial="Several devices were no help for small operations",
        partly="Several devices helped small operations in part",
        parallel="Several devices ran small operations at the same time",
        serial_code="no-help",
    ),
)
OVER_THREADS = Metric(
    "small_advantage_over_threads",
    bands=(
        Band(LOWEST, "operators", "Parallel operators beat parallel launches"),
        Band(0.8, "neither", "Parallel launches and parallel operators took about as long"),
        Band(1.25, "launches", "Parallel launches beat parallel operators"),
    ),
)
LAUNCHING = Metric(
    "small_dispatch_fraction",
    in_percent=True,
    bands=(
        Band(LOWEST, "computing", "Launching was not the limit of one device"),
        Band(0.8, "launching", "Launching was the limit of one device"),
    ),
)
LARGEST = Metric("largest_speedup", at_most=SPEEDUP.at_most)

BESIDE = Count(
    "small_beside_another_device",
    "multiplications of a device ran while another one computed",
    case=f"{ALL}, size {LARGEST_SMALL}",
    tally=computed_beside_another_device,
    at_once=True,
    # Once takes about as long as a scheduler's slice, or less: a device may have no core meanwhile.
    runs=10,
    metric=SPEEDUP.name,
    title="Small ones at once",
    bands=(
        Band(LOWEST, "serial", "No, the devices took turns", overlap="none"),
        # Where launching is the limit the devices are seldom busy.
        Band(0.02, "parallel", "Yes, the devices worked at the same time", overlap="all"),
    ),
)

EXPERIMENT = Experiment(
    name="small-ops",
    question="From which size on do two devices pay?",
    position=4,
    exercises=(Exercise(2, "Does parallelism help on a single device when operations are small?"),),
    program=program,
    case="all devices, size 128",
    metrics=(SPEEDUP, OVER_THREADS, LAUNCHING, LARGEST),
    counts=(BESIDE,),
    answer=from_which_size,
    changes=(
        Change(lambda answered: len(answered.devices) == 1, "A second device (--devices 2)."),
        with_queue("devices should work at the same time"),
        Change(
            lambda answered: answered.is_in(LAUNCHING.name, "launching"),
            "Cheaper launches, or several operations in each: one device computes about as fast as "
            "Python launches.",
        ),
        LESS_NOISE,
        Change(
            lambda answered: answered.is_in(SPEEDUP.name, "parallel"),
            "Smaller operations (--sizes 2,4,8), for which launching takes the time.",
        ),
        MORE_CORES,
        Change(lambda _: True, "Larger operations (--sizes 128,256,512)."),
    ),
    settings=OF_PRODUCTS,
    queued_case="one device, size 128",
    curves=Curves(
        over="size",
        quantity="speedup",
        x_title="side of the matrices",
        y_title="speed-up over one device",
        caption="Over one device with its own threads: the same multiplications spread over all "
        "devices, and on one "
        "device with the threads of all.",
    ),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "sizes": "8,32,128,256"}},
)
