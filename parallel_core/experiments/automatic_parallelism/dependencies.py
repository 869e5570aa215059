"""Dependencies: are tasks that depend on each other across devices right, and as fast as they could be?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 5.

Prediction: Every result is right, because an engine starts a task when what it depends on is there. No schedule is
faster than the longest chain of dependent tasks (the critical path), or than the work divided by the devices; an engine
that starts each task as soon as it may comes near the larger of the two.

Method: Two diamonds (a fork to all devices, a join, a fork, a join) and three random graphs, drawn from seeds, of
multiplications and averages of matrices on all devices. A value that is needed on another device is copied there. Each
graph is run with a wait after every operation, which gives each operation's separate seconds, and then with none.

Look at: `bound_fraction`, the largest bound over the time of the diamonds freely scheduled; the bounds:
`critical_path_seconds`, `work_per_device_seconds`, and `busiest_device_seconds`, since tasks stay where they were
placed and a device with more than its share of them ends later; and `speedup`, the time with a wait after every
operation over the time without.

Read: 1 is as fast as any schedule could be. An engine that runs everything serially reaches only the bound over the sum
of all operations. Slightly more than 1 may be seen: an operation that is timed separately is also waited for.

If a device takes its tasks in the program's order, as a thread or a CUDA stream does, a task that has to wait delays
those behind it, even if they could start. An engine that queues a task once it is ready has no such rule, but may start
one that nobody is waiting for before one on the critical path. Random graphs show both.
"""

from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from backends import Backend
from parallel_core.experiments.automatic_parallelism.layered_graphs import (
    Node,
    device_matrices,
    diamond,
    expected,
    graph_as_units,
    launch_graph,
    random_graph,
)
from parallel_core.experiments.automatic_parallelism.scheduling import (
    BOUND_FRACTION,
    CHANGES,
    FREE,
    SPEEDUP,
    Program,
    find_bounds,
    time_programs,
)
from parallel_core.experiments.runner.changes import larger
from parallel_core.experiments.runner.declaration import OF_COPIES, Chosen, Exercise, Experiment
from parallel_core.experiments.runner.metrics import Times, Values
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.works import size_for

__all__ = ["EXPERIMENT", "program", "program_of"]

DIAMOND = "diamonds"
SEEDS = (1, 2, 3)
MULTIPLICATION_SECONDS = 0.004
"""About how long a multiplication takes: long beside the call and the waiting that are timed with each."""
SIZE = Chosen("Side of the matrices. Default: chosen.", how=lambda one: size_for(one, 10 * MULTIPLICATION_SECONDS, 10))


def program(trial: Trial, size: Annotated[int, SIZE]) -> None:
    """Time task graphs one operation after the other and freely scheduled, and compare with what is possible."""
    count = len(trial.devices)
    graphs = {DIAMOND: diamond(count), **{f"random {seed}": random_graph(seed, count) for seed in SEEDS}}
    programs = {name: program_of(nodes, size) for name, nodes in graphs.items()}
    scheduled = time_programs(trial, programs)
    find_bounds(trial, DIAMOND, scheduled.pop(DIAMOND))

    def median_of_random(times: Times) -> Values:
        return np.median([one.bound_fraction(times) for one in scheduled.values()], axis=0)

    trial.found_by(RANDOM.name, median_of_random)
    for name, nodes in graphs.items():
        values = programs[name].run(trial.backend, programs[name].inputs(trial.backend))
        trial.check("results", values, expected(nodes, device_matrices(size, count)))


def program_of(nodes: tuple[Node, ...], size: int) -> Program:
    """Make the program that loads a matrix on every device and computes a graph."""

    def inputs(backend: Backend) -> Any:
        matrices = device_matrices(size, len(backend.devices))
        return [backend.asarray(matrix, device) for matrix, device in zip(matrices, backend.devices, strict=True)]

    return Program(
        inputs,
        lambda backend, matrices: launch_graph(backend, nodes, matrices),
        lambda backend: graph_as_units(backend, nodes, inputs(backend)),
    )


RANDOM = replace(BOUND_FRACTION, name="random_bound_fraction", about="random graphs")

EXPERIMENT = Experiment(
    name="dependencies",
    position=6,
    exercises=(Exercise(5, "Are tasks with complex dependencies right, and faster in parallel?"),),
    program=program,
    case=f"{DIAMOND}, {FREE}",
    metrics=(BOUND_FRACTION, RANDOM, SPEEDUP),
    changes=(*CHANGES, larger("size", "Larger matrices", "handing operations over matters less")),
    settings=OF_COPIES,
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
)
