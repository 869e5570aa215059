"""Independent operations: does a framework run operations without dependencies in parallel on one
device?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 1 (the operations of the book's
`run` do not depend on each other).

Prediction: A device's queue is served in order by one worker unless told otherwise, so independent
operations run one after the other, as a chain does. Two workers start an operation that does not
depend on the one that runs: independent matrix multiplications then take half the time, and a chain
takes as long as before. Two threads within each are another way to use the same two cores.

Method: 25 independent matrix multiplications on one device, and 25 in a chain, by one worker and by
two, each with a dedicated core and threads; then by one worker with twice the threads. A framework
reads the numbers of workers and threads when it starts, so those that the loaded backend does not
have are measured in fresh processes, on one device; what it has is measured before and after them.
One that it refuses (JAX has one worker) is left out, with a note.

Look at: how many of the independent multiplications ran beside another one of their device, by one
worker and by several, in repetitions that the framework's profiler recorded; then, by the clock,
`parallel_speedup`, their time by the fewest workers over that by the most, and `chain_speedup`, the
same for the chain; `threads_speedup`, the former over that with twice the threads;
`independence_speedup`, the chain's time over the independent multiplications' in the same process,
by the fewest workers, and `independence_speedup_most_workers`.

Read: One worker takes operations in turn, so it counts 0, on a busy machine too. A speed-up of 1 is
one after the other, and the number of workers is the most that can be reached. If nothing is queued
(synchronous engines, NumPy), on JAX, and on GPUs, there is one worker to measure:
`parallel_speedup` and `chain_speedup` are absent then. Chain and independent multiplications are
timed alternately, processes are not: if `chain_speedup` is not about 1, the figures that compare
processes are doubtful.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np

from backends.registry import offers
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    Change,
    larger,
    more_cores,
    with_queue,
)
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Exercise, Experiment
from parallel_core.experiments.runner.formulas import ratio
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, gained
from parallel_core.experiments.runner.parameters import Chosen, Parameter
from parallel_core.experiments.runner.tallies import computed_beside_its_own_device
from parallel_core.experiments.runner.trial import Trial, not_measured
from parallel_core.experiments.workloads import (
    MULTIPLICATIONS,
    chained,
    larger_size_to_count,
    multiplications,
    multiplied,
    size_for_run,
)
from parallel_core.measurement.over_rounds import BETWEEN_PROCESSES
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.system.errors import RequestError
from parallel_core.system.machine import joined_watches

TIMINGS = 20
"""The timings of all multiplications in a round, here and in other processes."""
SIZE = Chosen(
    "Side of the matrices. Default: chosen for runs of about 0.1 s.",
    how=lambda trial: size_for_run(trial, TIMINGS, 0.5),
)
COMPARED = Parameter(
    "Beside --workers; others than that are measured in fresh processes.", maximum=256
)


def program(
    trial: Trial,
    size: Annotated[int, SIZE],
    workers_compared: Annotated[Sequence[int], COMPARED] = (1, 2),
) -> None:
    """Time independent multiplications and a chain, with the workers and threads of this process.

    Then time them with other workers and other threads, in fresh processes.
    """
    workers, threads = trial.backend.workers_per_device, trial.backend.threads_per_device
    on_cpu = trial.devices[0].kind == "cpu"
    wanted = sorted({workers, *workers_compared})
    counts = wanted if trial.backend.engine == "async" and on_cpu else [workers]
    # The workers and threads of other processes.
    elsewhere = [(count, threads) for count in counts if count != workers]
    if len(wanted) > 1 and on_cpu:
        elsewhere.append((counts[0], 2 * threads))
    del trial.parameters["workers_compared"]
    trial.parameters["products"] = MULTIPLICATIONS
    # The powers of an orthogonal matrix neither grow nor shrink.
    drawn = np.random.default_rng(0).standard_normal((size, size))
    orthogonal, _ = np.linalg.qr(drawn)
    x = trial.backend.asarray(orthogonal.astype(np.float32), trial.devices[0])
    independent, chain = multiplications(trial, x), chained(trial, x)
    counted_case = named("independent", workers)
    if larger_size := larger_size_to_count(trial, counted_case, size):
        larger_x = trial.normal(larger_size, trial.devices[0])
        trial.count_as(counted_case, lambda: multiplied(trial, larger_x, MULTIPLICATIONS))
    share_of_worker = multiplications(trial, x, math.ceil(MULTIPLICATIONS / workers))

    def time_here(share: float) -> None:
        trial.time(named("independent", workers), independent, bare=[share_of_worker])
        trial.time(named("chain", workers), chain)
        trial.run(share)

    if elsewhere:
        # Time before and after the other processes, so that a drift of the machine affects all.
        time_here(0.15)
        before = dict(trial.cases)
        for number, (other_workers, other_threads) in enumerate(elsewhere):
            tell("other workers and threads, in a separate process", number / len(elsewhere))
            remaining = len(elsewhere) - number
            _time_elsewhere(trial, size, other_workers, other_threads, remaining)
        time_here(0.95)
        for name, case in before.items():
            trial.cases[name] = joined(case, trial.cases[name])
    else:
        time_here(0.9)
    counts = [count for count in counts if named("independent", count) in trial.cases]
    trial.parameters["workers"] = ",".join(map(str, counts))
    fewest, most = counts[0], counts[-1]
    few, many = named("independent", fewest), named("independent", most)
    chain_by_few, chain_by_many = named("chain", fewest), named("chain", most)
    if few != many:
        trial.found_by(SPEEDUP.name, ratio(few, many), noise=BETWEEN_PROCESSES)
        trial.found_by("chain_speedup", ratio(chain_by_few, chain_by_many), noise=BETWEEN_PROCESSES)
    trial.found_by(INDEPENDENCE.name, ratio(chain_by_few, few))
    trial.found_by("independence_speedup_most_workers", ratio(chain_by_many, many))
    by_threads = ratio(few, _with_threads(few, 2 * threads))
    trial.found_by(THREADS.name, by_threads, noise=BETWEEN_PROCESSES)
    products = [orthogonal @ orthogonal] * MULTIPLICATIONS
    trial.check("products", independent.launch(), products)
    power = np.linalg.matrix_power(orthogonal, MULTIPLICATIONS + 1)
    trial.check("products in a chain", [chain.launch()], [power])


def _time_elsewhere(trial: Trial, size: int, workers: int, threads: int, remaining: int) -> None:
    """Time the same with other workers or threads, in a fresh process.

    It is the first of the `remaining` processes, which share what is left of the budget.
    """
    options: dict[str, str | float] = {
        "workers": workers,
        "workers_compared": workers,
        "threads": threads,
        "size": size,
        "sizes_chosen": "size" in trial.described.get("chosen_by", {}),
    }
    kept_name: Callable[[str], str] = str
    if threads != trial.backend.threads_per_device:
        # Nothing is counted with other threads than those of this process.
        options["count"] = 0
        kept_name = partial(_with_threads, threads=threads)
    products = f"products by {workers} × {threads} threads"
    try:
        trial.add_elsewhere(products, "independent-ops", options, kept_name, 0.75, remaining)
    except RequestError as reason:
        trial.notes.append(not_measured(products, str(reason)))


def _with_threads(case: str, threads: int) -> str:
    """Name a case with other threads than those of this process."""
    return f"{case}, {threads} threads each"


def named(operations: str, workers: int) -> str:
    """Name a case of some operations: `chain, 2 workers`."""
    noun = "worker" if workers == 1 else "workers"
    return f"{operations}, {workers} {noun}"


def joined(before: Case, after: Case) -> Case:
    """Put the times of two measurements of one case together."""
    watches = [case.watch for case in (before, after) if case.watch is not None]
    return replace(
        before,
        watch=joined_watches(watches),
        seconds=before.seconds + after.seconds,
        dispatch_seconds=before.dispatch_seconds + after.dispatch_seconds,
        warmup_seconds=before.warmup_seconds + after.warmup_seconds,
        bare_seconds=before.bare_seconds + after.bare_seconds,
    )


def workers_of(result: Result) -> list[int]:
    """Return the numbers of workers that a result compares, ascending; by default only 1."""
    written = str(result.parameters.get("workers", 1))
    return [int(count) for count in written.split(",")]


def most_over_fewest(result: Result) -> float:
    """Return the most workers over the fewest: the speed-up that is possible."""
    workers = workers_of(result)
    return workers[-1] / workers[0]


def whose_workers(result: Result) -> str:
    """Say whose queue and workers run a CPU device's operations; empty if nothing is queued."""
    is_queued = result.backend["engine"] == "async"
    on_cpu = result.backend["devices"][0].startswith("cpu")
    offer = offers().get(result.backend["name"])
    return offer.queue if offer is not None and is_queued and on_cpu else ""


SPEEDUP = Metric(
    "parallel_speedup",
    means="speed-up of independent operations on the most workers over the fewest: 1 is no gain",
    about=whose_workers,
    share=lambda speedup, result: gained(speedup, most_over_fewest(result)),
    at_most=most_over_fewest,
    bands=(
        Band(LOWEST, "hindered", "More workers slowed independent operations down", overlap="none"),
        Band(-0.2, "serial", "Independent operations ran one after the other", overlap="none"),
        Band(0.25, "partly", "Independent operations overlapped in part", overlap="part"),
        Band(
            0.5,
            "parallel",
            "More workers ran independent operations at the same time",
            overlap="all",
        ),
    ),
)
INDEPENDENCE = Metric(
    "independence_speedup",
    means="speed-up of independent operations over a chain, on the fewest workers: 1 is in order",
    bands=(
        Band(
            LOWEST,
            "in-order",
            "By the fewest workers, independent operations ran in order, as a chain does",
        ),
        Band(
            1.25,
            "parallel",
            "By the fewest workers, independent operations ran at the same time, unlike a chain",
        ),
    ),
)
THREADS = Metric(
    "threads_speedup",
    means="speed-up of independent operations with twice the threads within each: 1 is no gain",
    at_most=lambda _: 2.0,
    bands=(
        Band(LOWEST, "slower", "Twice the threads slowed independent operations down"),
        Band(
            0.8, "unchanged", "Twice the threads made little difference to independent operations"
        ),
        Band(1.25, "faster", "Twice the threads made independent operations faster"),
    ),
)
ANSWERS = (
    Band(LOWEST, "serial", "No, a device's operations ran one after the other", overlap="none"),
    Band(0.2, "parallel", "Yes, a device's operations ran at the same time", overlap="all"),
)
BY_ONE_WORKER = Count(
    "at_once_by_one_worker",
    "independent multiplications ran beside another one of their device",
    case=named("independent", 1),
    tally=computed_beside_its_own_device,
    at_once=True,
    metric=INDEPENDENCE.name,
    title="At once on one device",
    bands=ANSWERS,
)
BY_SEVERAL_WORKERS = replace(
    BY_ONE_WORKER,
    name="at_once_by_several_workers",
    counted="did by several workers of its queue",
    case=named("independent", 2),
    metric=SPEEDUP.name,
    title="",
)

EXPERIMENT = Experiment(
    name="independent-ops",
    question="Do operations overlap on one device?",
    position=3,
    exercises=(
        Exercise(1, "Do independent operations on one device run in parallel by themselves?"),
    ),
    program=program,
    case="independent, 1 worker",
    metrics=(
        SPEEDUP,
        INDEPENDENCE,
        THREADS,
        Metric(
            "independence_speedup_most_workers",
            at_most=lambda result: float(workers_of(result)[-1]),
        ),
    ),
    counts=(BY_ONE_WORKER, BY_SEVERAL_WORKERS),
    changes=(
        with_queue(
            "a second worker for it (--workers 2) should run two operations at the same time"
        ),
        Change(
            lambda answered: answered.on_gpus,
            "Two streams on one GPU (--devices gpu:0/0,gpu:0/1), each with a queue.",
        ),
        Change(
            # JAX has one worker for a queue.
            lambda answered: (
                len(workers_of(answered.result)) == 1 and answered.result.backend["name"] != "jax"
            ),
            lambda answered: (
                "More workers for the queue (--workers-compared "
                f"1,{2 * workers_of(answered.result)[0]})."
            ),
        ),
        Change(
            lambda answered: answered.is_in(SPEEDUP.name, "partly", "parallel"),
            lambda answered: (
                "More workers for the queue by default "
                f"(--workers {workers_of(answered.result)[-1]})."
            ),
        ),
        LESS_NOISE,
        more_cores(
            lambda answered: (
                answered.result.backend["threads_per_device"] * workers_of(answered.result)[-1]
            )
        ),
        larger("size", "Larger matrices", "handing them to workers matters less"),
    ),
    settings=OF_PRODUCTS,
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 250}},
)
