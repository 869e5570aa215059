"""Dependencies: are tasks that depend on each other across devices right, and as fast as they could be?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 5.

Prediction: Every result is right, because an engine starts a task when what it depends on is there. No schedule is
faster than the longest chain of dependent tasks (the critical path), or than the work divided by the devices; an engine
that starts each task as soon as it may comes near the larger of the two.

Method: Two diamonds (a fork to all devices, a join, a fork, a join) and three random graphs, drawn from seeds, of
products and averages of matrices on all devices. A value that is needed on another device is copied there. Each graph
is run with a wait after every operation, which gives each operation's seconds alone, and then with none.

Look at: `bound_fraction`, the largest bound over the time of the diamonds freely scheduled, and beside it the bounds:
`critical_path_seconds`, `work_per_device_seconds`, and `busiest_device_seconds`, since tasks stay where they were
placed and a device with more than its share of them ends later.

Read: 1 is as fast as any schedule could be. An engine that runs everything in turn reaches only the bound over the sum
of all operations. Slightly more than 1 may be seen: an operation that is timed alone is also called and waited for.

If a device takes its tasks in the program's order, as a thread or a CUDA stream does, a task that has to wait delays
those behind it, even if they could start. An engine that queues a task once it is ready has no such rule, but may start
one that nobody is waiting for before one on the critical path. Random graphs show both.
"""

from collections.abc import Collection
from statistics import median
from typing import Any

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
    Program,
    Scheduled,
    about_schedule,
    time_programs,
    what_would_change,
)
from parallel_core.experiments.measuring import largest_error, result_of
from parallel_core.experiments.products import size_for
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
from parallel_core.measurement.confidence_intervals import decide
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import countdown
from parallel_core.measurement.verdicts import times_as_long
from parallel_core.system.formatting import figure

__all__ = ["EXPERIMENT", "about_random", "about_values", "program", "run", "verdict"]

DIAMOND = "diamonds"
SEEDS = (1, 2, 3)
PRODUCT_SECONDS = 0.004
"""About how long a product takes: long beside the call and the waiting that are timed with each."""


def run(backend: Backend, size: ChosenSize = None, rounds: Rounds = 5, budget: Budget = BUDGET) -> Result:
    """Time task graphs one operation after the other and freely scheduled, and compare with what is possible."""
    left = countdown(budget)
    size = size or size_for(backend, 10 * PRODUCT_SECONDS, 10, backend.devices[0])
    count = len(backend.devices)
    graphs = {DIAMOND: diamond(count), **{f"random {seed}": random_graph(seed, count) for seed in SEEDS}}
    programs = {name: program(nodes, size) for name, nodes in graphs.items()}
    scheduled = time_programs(backend, programs, rounds, left(0.85))
    tell("checking the graphs' values", 0.0)
    diamonds, drawn = scheduled[DIAMOND], {name: each for name, each in scheduled.items() if name != DIAMOND}
    error = largest_of([_error_of(backend, nodes, size) for nodes in graphs.values()])
    return result_of(
        "dependencies",
        backend,
        parameters={"size": size, "rounds": rounds, "budget": budget},
        cases=[case for each in scheduled.values() for case in (each.alone, each.free)],
        metrics={
            "bound_fraction": diamonds.bound_fraction,
            "random_bound_fraction": median(each.bound_fraction for each in drawn.values()),
            "critical_path_seconds": diamonds.bounds.critical_path,
            "work_per_device_seconds": diamonds.bounds.work_per_device,
            "busiest_device_seconds": diamonds.bounds.busiest_device,
            "speedup": diamonds.alone.median / diamonds.free.median,
        },
        intervals={
            "bound_fraction": diamonds.bound_interval,
            "speedup": times_as_long(diamonds.alone, diamonds.free),
        },
        explanation=verdict(scheduled),
        answer=Answer(
            (about_values(sum(map(len, graphs.values())), len(graphs), error), about_random(drawn.values())),
            what_would_change(backend, diamonds, f"--size {2 * size}"),
        ),
        notes=tuple(about_schedule(f"The graph {name!r}", each) for name, each in drawn.items()),
        error=error,
        compared="results",
    )


def program(nodes: tuple[Node, ...], size: int) -> Program:
    """Make the program that loads a matrix on every device and computes a graph."""

    def inputs(backend: Backend) -> Any:
        matrices = device_matrices(size, len(backend.devices))
        return [backend.asarray(matrix, device) for matrix, device in zip(matrices, backend.devices, strict=True)]

    return Program(
        inputs,
        lambda backend, matrices: launch_graph(backend, nodes, matrices),
        lambda backend: graph_as_units(backend, nodes, inputs(backend)),
    )


def _error_of(backend: Backend, nodes: tuple[Node, ...], size: int) -> float:
    """Compute a graph once more and return the largest relative difference of any node from NumPy's."""
    planned = program(nodes, size)
    values = planned.run(backend, planned.inputs(backend))
    return largest_error(map(backend.to_numpy, values), expected(nodes, device_matrices(size, len(backend.devices))))


def verdict(scheduled: dict[str, Scheduled]) -> str:
    """Say how near the diamonds came to what is possible."""
    return about_schedule("The graph of two diamonds", scheduled[DIAMOND])


def about_values(tasks: int, graphs: int, error: float) -> str:
    """Say how right the results are."""
    return f"All {tasks} results of {graphs} graphs are NumPy's: the largest relative error is {error:.1e}."


def about_random(drawn: Collection[Scheduled]) -> str:
    """Say in how many of the random graphs queueing paid."""
    ratios = [times_as_long(each.free, each.alone, among=len(drawn)) for each in drawn]
    places = [decide(ratio, 1.0) for ratio in ratios]
    low, high = (figure(of(ratio.estimate for ratio in ratios)) for of in (min, max))
    losses = f", and not to pay in {places.count(1)}" if 1 in places else ""
    return (
        f"Queueing is shown to pay in {places.count(0)} of {len(ratios)} random graphs{losses}: they took {low} to "
        f"{high} × as long as their operations one by one."
    )


EXPERIMENT = Experiment(
    name="dependencies",
    position=6,
    exercises=(Exercise(5, "Are tasks with complex dependencies right, and faster in parallel?"),),
    run=run,
    case="diamonds, freely scheduled",
    metric="bound_fraction",
    metric_means="the least time that any schedule needs over the time taken: 1 is as fast as any could be",
    metric_limits=(0.0, 1.0),
    settings=OF_COPIES,
    calibrated=("size",),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
)
