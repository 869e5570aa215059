"""Independent operations: does a framework run operations without dependencies in parallel on one device?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 1 (the operations of the book's `run` do not depend on
each other).

Prediction: A device's queue is served in order by one worker unless told otherwise, so independent operations run
one after the other, as a chain does: the framework uses what it knows of dependencies between devices only. Two workers
start an operation that does not depend on the one that runs: independent products then take half the time, and a chain
takes as long as before. Two threads within each product are another way to use the same two cores.

Method: 50 independent products on one device, and 50 in a chain, by one worker and by two, each with a core and threads
of its own; then by one worker with twice the threads. A framework reads the numbers of workers and threads when it
starts, so those that the loaded backend does not have are measured in fresh processes, on one device; what it has is
measured before and after them.

Look at: `independence_speedup`, the chain's time over the independent products' in the same process, by the fewest
workers, and `independence_speedup_most_workers`; `parallel_speedup`, the independent products' time by the fewest
workers over that by the most; `chain_speedup`, the same for the chain; `threads_speedup`, the independent products'
time by the fewest workers over that with twice the threads.

Read: 1 is one after the other, and the number of workers is the most that can be reached. If nothing is queued
(synchronous engines, NumPy), and on GPUs, there is one worker to measure: `parallel_speedup` and `chain_speedup` are 1
because nothing is compared. Chain and independent products are timed in turn, processes are not: if the machine
drifts between them, the first two ratios can be believed and the other three cannot.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from backends import Backend
from backends.host import available_cores
from parallel_core.experiments.automatic_parallelism.independent_ops import verdicts
from parallel_core.experiments.automatic_parallelism.independent_ops.timing import (
    joined,
    named,
    time_elsewhere,
    time_here,
    with_threads,
)
from parallel_core.experiments.experiment import BUDGET, OF_PRODUCTS, Budget, Exercise, Experiment, Parameter, Rounds
from parallel_core.experiments.measuring import result_of
from parallel_core.experiments.products import PRODUCTS, size_for_run
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import countdown
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, times_as_long

__all__ = ["EXPERIMENT", "run"]

STARTING = 0.5
"""The share of the time of a process of its own that goes by until it measures, about: starting, and importing."""


def run(
    backend: Backend,
    workers_compared: Annotated[
        Sequence[int], Parameter("Beside --workers; others than that are measured in fresh processes.", maximum=256)
    ] = (1, 2),
    size: Annotated[int | None, Parameter("Side of the matrices. Default: chosen for runs of about 0.1 s.")] = None,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time independent products and a chain on one device, here and in processes with other workers and threads.

    `workers_compared` are numbers of workers beside the backend's own; with that one alone, no process is started.
    """
    own, threads, device = backend.workers_per_device, backend.threads_per_device, backend.devices[0]
    left = countdown(budget)
    size = size or size_for_run(backend, 0.5)
    wanted = sorted({own, *workers_compared})
    counts = wanted if backend.engine == "async" and device.kind == "cpu" else [own]
    others = [(workers, threads) for workers in counts if workers != own]
    if len(wanted) > 1 and device.kind == "cpu":
        others.append((counts[0], 2 * threads))

    cases, error = time_here(backend, size, rounds, left(0.15 if others else 0.9))
    for place, (workers, each) in enumerate(others):
        tell("other workers and threads, in a process of their own", place / len(others))
        # A process that has the least of budgets takes one round.
        of_this = max(0.01, (1 - STARTING) * left(0.75) / (len(others) - place))
        more, other_error = time_elsewhere(backend, workers, each, size, rounds, of_this)
        cases, error = cases | more, largest_of([error, other_error])
    if others:
        again, error_again = time_here(backend, size, rounds, left(0.95))
        error = largest_of([error, error_again])
        cases |= {name: joined(cases[name], case) for name, case in again.items()}

    by_few, chain_by_few = cases[named("independent", counts[0])], cases[named("chain", counts[0])]
    by_many, chain_by_many = cases[named("independent", counts[-1])], cases[named("chain", counts[-1])]
    fewest, most = counts[0], counts[-1]
    between = partial(times_as_long, noise=BETWEEN_PROCESSES)
    intervals = {
        "independence_speedup": times_as_long(chain_by_few, by_few),
        "independence_speedup_most_workers": times_as_long(chain_by_many, by_many),
        "parallel_speedup": between(by_few, by_many),
        "chain_speedup": between(chain_by_few, chain_by_many),
    }
    # So many workers can be worth no more than so many of one.
    limits = {"parallel_speedup": most / fewest, "independence_speedup_most_workers": float(most)}
    answers = [verdicts.about_workers(backend.engine, device.kind, intervals["parallel_speedup"], (fewest, most))]
    notes = []
    if len(counts) > 1:
        notes = [verdicts.verdict(by_many, chain_by_many, most), verdicts.about_chain(intervals["chain_speedup"])]
    if threaded := cases.get(with_threads(by_few, 2 * threads).name):
        intervals["threads_speedup"] = between(by_few, threaded)
        limits["threads_speedup"] = 2.0
        answers.append(verdicts.about_threads(intervals["threads_speedup"]))
    needed = max(workers * each for workers, each in [(own, threads), *others])
    notes.append(verdicts.about_cores(needed, available_cores()))
    return result_of(
        "independent-ops",
        backend,
        parameters={
            "size": size,
            "products": PRODUCTS,
            "workers": ",".join(map(str, counts)),
            "rounds": rounds,
            "budget": budget,
        },
        cases=list(cases.values()),
        metrics={name: interval.estimate for name, interval in intervals.items()},
        intervals=intervals,
        limits=limits,
        explanation=verdicts.verdict(by_few, chain_by_few, counts[0]),
        answer=Answer(
            tuple(answers),
            verdicts.what_would_change(
                backend, intervals["parallel_speedup"], counts, (needed, available_cores()), size
            ),
        ),
        notes=tuple(filter(None, notes)),
        error=error,
        compared="products",
    )


EXPERIMENT = Experiment(
    name="independent-ops",
    position=3,
    exercises=(Exercise(1, "Do independent operations on one device run in parallel by themselves?"),),
    run=run,
    case="independent, 1 worker",
    metric="parallel_speedup",
    metric_means="how many times as fast the most workers do independent products as the fewest: 1 is no gain",
    settings=OF_PRODUCTS,
    calibrated=("size",),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 250}},
)
