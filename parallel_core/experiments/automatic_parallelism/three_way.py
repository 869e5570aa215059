"""Three ways at once: can two devices compute while their results travel both ways between them?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 3 (computation on two devices, and communication
between both), and with `--trace` exercise 4 (what a profiler shows of it).

Prediction: Nothing here depends on anything else here, so a scheduler may do all of it at the same time, and all takes
as long as the longest part: of three equal parts, two thirds are saved. But copying between CPU devices is work for the
cores that compute. With two cores for three parts about a third can be saved at most.

Method: 50 products on the first device, 50 on the second, and copies of earlier results of both into buffers on the
other one: each part alone, and all at once, in turn. Results are copied so often that copying takes about as long as
computing. Launches alternate between the parts, so that no queue gets its work last. On a CPU, the time that the cores
worked on each part alone, added up and divided by the cores, is the least that all at once can take.

Look at: `saved_fraction`, the share of the parts' added times that doing all at once saves; `possible_fraction`, what
would be saved if all took as long as the longest part; `possible_on_cores_fraction`, the same if the cores' work
takes longer than that.

Read: 0 is one after the other, negative is worse. Near the smaller bound the schedule could not be better, and only
more devices or cores would help; far below it something waits needlessly. A bound is not exact: parts that share caches
and memory slow each other down, and threads that spin while they wait count as working.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from time import process_time

import numpy as np
from humanize import metric

from backends import Array, Backend
from parallel_core.experiments.automatic_parallelism.copying import (
    Copies,
    calibrate,
    copy_as_units,
    copy_each,
    copy_into,
)
from parallel_core.experiments.changes import LESS_NOISE, with_queue
from parallel_core.experiments.measuring import (
    Units,
    largest_error,
    refuse_single_device,
    result_of,
    take_in_turn,
    with_parts,
)
from parallel_core.experiments.products import PRODUCTS, normal_matrix, products, products_as_unit
from parallel_core.experiments.runner.declaration import (
    BUDGET,
    OF_COPIES,
    Budget,
    ChosenSize,
    Exercise,
    Experiment,
    Rounds,
)
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import Timing, countdown, measure
from parallel_core.measurement.verdicts import over_rounds
from parallel_core.system.formatting import figure
from parallel_core.system.machine_watch import usable_cores

__all__ = [
    "EXPERIMENT",
    "about_cores",
    "about_times",
    "all_at_once",
    "copy_both_ways",
    "fractions",
    "left_over",
    "lost_to_cores",
    "run",
    "verdict",
    "what_would_change",
]

COPIES, TOGETHER = "copies both ways", "all at once"
WORTH_SAYING = 0.01
"""A smaller share of the time that too few cores cost is none."""


def copy_both_ways(backend: Backend, results: list[list[Array]], buffers: list[list[Array]], copies: int) -> None:
    """Launch copies of each device's earlier results into its buffers on the other device."""
    for device, made, there in zip(backend.devices[1::-1], results, buffers, strict=True):
        copy_each(backend, made, device, there, copies)


def all_at_once(
    backend: Backend, matrices: list[Array], results: list[list[Array]], buffers: list[list[Array]], copies: int
) -> list[Array]:
    """Launch, in turn, a product on each device and the copies of one earlier result of each to the other."""
    made = []
    for index in range(PRODUCTS):
        for x, device, earlier, there in zip(matrices, backend.devices[1::-1], results, buffers, strict=True):
            made += products(backend, x, 1)
            there[index] = copy_into(backend, there[index], earlier[index], device, copies)
    return made


def run(
    backend: Backend,
    size: ChosenSize = None,
    copies: Copies = None,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time 50 products on each of two devices, the copying of earlier results both ways, and all at once.

    Raises RequestError for a backend with a single device.
    """
    refuse_single_device(backend, "three-way", "copies between devices")
    first, second = backend.devices[:2]
    left = countdown(budget)
    size, copies = calibrate(backend, second, size, copies, left(0.2))
    matrices = [normal_matrix(backend, size, device, seed) for seed, device in enumerate((first, second))]
    results = [products(backend, x) for x in matrices]
    buffers = [[backend.copy_to(x, to) for x in made] for made, to in zip(results, (second, first), strict=True)]

    worked: dict[str, list[float]] = {}
    computing = [f"products on {device}" for device in (first, second)]
    there, back = [f"copies to {device}" for device in (second, first)]
    units = Units(
        {
            **{name: products_as_unit(backend, x) for name, x in zip(computing, matrices, strict=True)},
            there: partial(copy_as_units, backend, results[0], second, buffers[0], copies, size),
            back: partial(copy_as_units, backend, results[1], first, buffers[1], copies, size),
        },
        {
            **{name: (name,) for name in computing},
            COPIES: (there, back),
            TOGETHER: (*computing, there, back),
        },
    )
    work: dict[str, Callable[[], object]] = {
        **{name: partial(products, backend, x) for name, x in zip(computing, matrices, strict=True)},
        COPIES: partial(copy_both_ways, backend, results, buffers, copies),
        TOGETHER: partial(all_at_once, backend, matrices, results, buffers, copies),
    }

    def take(name: str) -> Timing:
        before = process_time()
        timing = measure(backend, work[name])
        worked.setdefault(name, []).append(process_time() - before)
        return timing

    takes = {name: partial(take, name) for name in work}
    *parts, together = take_in_turn(backend, takes, rounds, units=units, budget=left(0.85)).values()
    # The first repetition was a warm-up.
    core_seconds = sum(median(worked[part.name][1:]) for part in parts)

    on_cpu = first.kind == second.kind == "cpu"
    tell("checking the copies", 0.0)
    # While others worked on them, the cores were not there.
    taken = together.watch.taken_share if together.watch else 0.0
    cores = usable_cores() * (1 - taken)
    bound = core_seconds / cores if on_cpu else 0.0
    found, short = fractions(parts, together, bound), lost_to_cores(parts, bound)
    unsaved = left_over(parts, together, bound)
    return result_of(
        "three-way",
        backend,
        parameters={"size": size, "products": PRODUCTS, "copies": copies, "rounds": rounds, "budget": budget},
        cases=(*parts, with_parts(together, parts)),
        metrics={name: interval.estimate for name, interval in found.items()},
        intervals=found,
        explanation=verdict(found, unsaved),
        answer=Answer(
            (about_times(parts, together), *((about_cores(found, short, cores),) if on_cpu else ())),
            what_would_change(backend, found, unsaved, short, cores),
        ),
        error=_error_of(backend, matrices, results, size),
        compared="products or copies",
    )


def fractions(parts: Sequence[Case], together: Case, core_bound: float) -> dict[str, Interval]:
    """Return which share of the parts' added times was saved, and could be; `core_bound` is in seconds."""
    times = [case.seconds for case in (*parts, together)]
    least = _least_time(parts, core_bound)
    return {
        "saved_fraction": over_rounds(lambda *each: 1 - each[-1] / sum(each[:-1]), *times),
        "possible_fraction": over_rounds(lambda *each: 1 - np.maximum.reduce(each[:-1]) / sum(each[:-1]), *times),
        "possible_on_cores_fraction": over_rounds(lambda *each: 1 - least(*each[:-1]) / sum(each[:-1]), *times),
    }


def left_over(parts: Sequence[Case], together: Case, core_bound: float) -> Interval:
    """Return which share of the parts' added times could be saved beyond what was; negative beyond the bound."""
    least = _least_time(parts, core_bound)
    times = [case.seconds for case in (*parts, together)]
    return over_rounds(lambda *each: (each[-1] - least(*each[:-1])) / sum(each[:-1]), *times)


def lost_to_cores(parts: Sequence[Case], core_bound: float) -> Interval:
    """Return which share of the parts' added times cannot be saved for the cores have too much to do; at least 0."""
    least = _least_time(parts, core_bound)
    times = [case.seconds for case in parts]
    return over_rounds(lambda *each: (least(*each) - np.maximum.reduce(each)) / sum(each), *times)


def _least_time(parts: Sequence[Case], core_bound: float) -> Callable[..., np.ndarray]:
    """Return a function of the parts' times: the least that all at once can take, by the longest part or the cores."""
    # What the cores work for the parts drifts as the parts do.
    share = core_bound / sum(part.median for part in parts)
    return lambda *each: np.maximum(np.maximum.reduce(each), share * sum(each))


def _error_of(backend: Backend, matrices: list[Array], results: list[list[Array]], size: int) -> float:
    """Do all at once into fresh buffers, and compare products and copies with NumPy's products."""
    zeros = np.zeros((size, size), dtype=np.float32)
    # The timed buffers held the right values before any timed copy.
    buffers = [[backend.asarray(zeros, device) for _ in range(PRODUCTS)] for device in backend.devices[1::-1]]
    made = all_at_once(backend, matrices, results, buffers, copies=1)
    squares = [x @ x for x in map(backend.to_numpy, matrices)]
    return largest_of(
        [
            largest_error(map(backend.to_numpy, [*made[mine::2], *copied]), [square] * 2 * PRODUCTS)
            for mine, (square, copied) in enumerate(zip(squares, buffers, strict=True))
        ]
    )


def verdict(found: Mapping[str, Interval], left: Interval) -> str:
    """Say how much was saved, and whether that is less than could be; `left` is the difference."""
    saved, possible = found["saved_fraction"], found["possible_on_cores_fraction"]
    told = f"{with_bounds(saved)} of the time was saved"
    match decide(saved, 0.0):
        case 0:
            return f"All at once took longer than one after the other, {told}: the parts got in each other's way."
        case None:
            return f"No overlap is shown: {told}."
    most = f"of {with_bounds(possible)} that could be"
    match decide(left, 0.0):
        case 1:
            return f"The parts overlapped in part: {told}, {most}."
        case 0:
            return f"Computing and copying went on at the same time: {told}, more than the bound, which is not exact."
    return f"Computing and copying went on at the same time: {told}, {most}: no difference is shown."


def about_times(parts: Sequence[Case], together: Case) -> str:
    """Say how long the parts took one after the other, and all at once."""
    added, longest = sum(part.median for part in parts), max(part.median for part in parts)
    return (
        f"One after the other the {len(parts)} parts took {metric(added, 's')}, the longest of them "
        f"{metric(longest, 's')}, and all at once {metric(together.median, 's')}."
    )


def about_cores(found: Mapping[str, Interval], short: Interval, cores: float) -> str:
    """Say whether the number of cores or the longest part limits what can be saved; `short` is what the cores cost."""
    ideal, possible = found["possible_fraction"].estimate, found["possible_on_cores_fraction"].estimate
    match decide(short, WORTH_SAYING):
        case 1:
            return (
                f"With a core for each queue {ideal:.0%} could be saved, and with the time of {figure(cores)} cores "
                f"{possible:.0%}: copying between CPU devices is work for the cores that compute."
            )
        case 0:
            return (
                f"The longest part limits what can be saved ({ideal:.0%}): the time of {figure(cores)} cores would "
                "suffice for all parts at once."
            )
    return (
        f"With a core for each queue {ideal:.0%} could be saved; the noise leaves open whether the time of "
        f"{figure(cores)} cores suffices for as much."
    )


def what_would_change(
    backend: Backend, found: Mapping[str, Interval], left: Interval, short: Interval, cores: float
) -> str:
    """Say what would save more."""
    if backend.engine == "sync":
        return with_queue(backend, "the parts should go on at the same time")
    if decide(found["saved_fraction"], 0.0) is None:
        return LESS_NOISE
    if decide(short, WORTH_SAYING) == 1:
        return f"More cores than {figure(cores)}: copies and products are work for the same ones."
    if decide(found["saved_fraction"], 0.0) == 0 or decide(left, 0.0) == 1:
        return "Parts that hinder each other less, in caches and memory: smaller matrices (--size) or fewer --copies."
    return "A shorter longest part (--copies changes its balance): all at once can take no less than that."


EXPERIMENT = Experiment(
    name="three-way",
    position=5,
    exercises=(
        Exercise(3, "Can two devices compute while data travel between them?"),
        Exercise(4, "What does a profiler show of how efficient that is?", options="--trace FILE.json"),
    ),
    run=run,
    case=TOGETHER,
    metric="saved_fraction",
    metric_means="the share of the parts' added times that is saved: 0 is one after the other, below 0 is worse",
    metric_limits=(-1.0, 1.0),
    settings=OF_COPIES,
    calibrated=("size", "copies"),
    options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 500}},
)
