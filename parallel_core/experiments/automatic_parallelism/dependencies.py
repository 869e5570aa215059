"""Dependencies: are tasks that depend on each other across devices right, and as fast as they could
be?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 5.

Prediction: Every result is right, because an engine starts a task when what it depends on is there.
No schedule is faster than the longest chain of dependent tasks (the critical path), or than the
work divided by the devices; an engine that starts each task as soon as it may comes near the larger
of the two.

Method: Two diamonds (a fork to all devices, a join, a fork, a join) and three random graphs, drawn
from seeds, of multiplications and averages of matrices on all devices. A value that is needed on
another device is copied there. Each graph is run with a wait after every operation, which gives
each operation's separate seconds, and then with none.

Look at: how many dependencies of the diamonds were broken, which none may be, and how many
multiplications ran while another device computed, in repetitions that the framework's profiler
recorded; then, by the clock, `bound_fraction`, the largest bound over the time of the diamonds
freely scheduled; the bounds: `critical_path_seconds`, `work_per_device_seconds`, and
`busiest_device_seconds`, since tasks stay where they were placed and a device with more than its
share of them ends later; and `speedup`, the time with a wait after every operation over the time
without.

Read: A broken dependency is an error of the engine, whatever else the machine does. 1 is as fast as
any schedule could be. An engine that runs everything serially reaches only the bound over the sum
of all operations. Slightly more than 1 may be seen: an operation that is timed separately is also
waited for.

If a device takes its tasks in the program's order, as a thread or a CUDA stream does, a task that
has to wait delays those behind it, even if they could start. An engine that queues a task once it
is ready has no such rule, but may start one that nobody is waiting for before one on the critical
path. Random graphs show both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from statistics import median
from typing import Annotated

import numpy as np

from backends import Array, Backend, Ops
from backends.host import available_cores
from parallel_core.experiments.automatic_parallelism.task_order import (
    BESIDE,
    BROKEN,
    broken_dependencies,
)
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    Answered,
    Change,
    larger,
    with_queue,
)
from parallel_core.experiments.runner.declaration import OF_COPIES, Exercise, Experiment
from parallel_core.experiments.runner.formulas import Formula, median_of, ratio
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Choice, Chosen
from parallel_core.experiments.runner.tallies import Repetition, Tally
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.works import (
    Program,
    larger_size_to_count,
    record,
    size_for,
    works_of_step,
)
from parallel_core.measurement.task_graph import (
    Bounds,
    Task,
    bounds_of,
    without_loads,
    work_seconds,
)
from parallel_core.measurement.timing import Timing, measure

ONE_BY_ONE, FREE = "one by one", "freely scheduled"
DIAMOND = "diamonds, "
MULTIPLICATION_SECONDS = 0.004
"""About how long a multiplication takes: long beside the call and the waiting that are timed with
each.
"""
LARGEST_CHECKED = 1024
"""NumPy would multiply a GPU's matrices, in double precision, for a minute."""
SIZE = Chosen(
    "Side of the matrices. Default: chosen.",
    how=lambda trial: Choice(size_for(trial, 10 * MULTIPLICATION_SECONDS, 10), "time"),
)


def program(trial: Trial, size: Annotated[int, SIZE]) -> None:
    """Time task graphs one operation after the other and freely scheduled, and compare with what is
    possible.
    """
    count = len(trial.devices)
    graphs = {
        DIAMOND: diamond(count),
        **{f"random {seed}, ": random_graph(seed, count) for seed in (1, 2, 3)},
    }
    if larger_size := larger_size_to_count(trial, DIAMOND + FREE, size):
        larger_program = program_of(graphs[DIAMOND], larger_size)
        inputs = larger_program.inputs(trial.backend)
        trial.count_as(DIAMOND + FREE, partial(larger_program.run, trial.backend, inputs))
    programs = {name: program_of(nodes, size) for name, nodes in graphs.items()}
    _, *random_graphs = time_programs(trial, programs)
    fractions = [scheduled.bound_fraction for scheduled in random_graphs]
    trial.found_by(RANDOM.name, median_of(fractions))
    checked = min(size, LARGEST_CHECKED)
    for nodes in graphs.values():
        values = program_of(nodes, checked).launch(trial.backend)
        trial.check("results", values, expected(nodes, device_matrices(checked, count)))


@dataclass(frozen=True)
class Node:
    """A task: the device that computes it, the nodes that it needs, and its multiplications.

    It takes the average of the matrices that it depends on, on its own device, and multiplies it by
    that device's matrix. With a spectral norm of about 1 they do not overflow.
    """

    device: int
    after: tuple[int, ...]
    products: int


def diamond(devices: int) -> tuple[Node, ...]:
    """Make two diamonds one after the other.

    Each is a fork to a branch on every device, and a join.
    """
    nodes = [Node(0, (), 1)]
    for _ in range(2):
        fork = len(nodes) - 1
        nodes += [Node(device, (fork,), 4) for device in range(devices)]
        nodes.append(Node(0, tuple(range(fork + 1, len(nodes))), 1))
    return tuple(nodes)


def random_graph(seed: int, devices: int, layers: int = 6) -> tuple[Node, ...]:
    """Draw layers of nodes on random devices.

    Each node depends on one to three nodes of the two layers before its own.
    """
    generator = np.random.default_rng(seed)
    nodes: list[Node] = []
    starts = [0, 0]
    for _ in range(layers):
        reachable = range(starts[-2], len(nodes))
        starts.append(len(nodes))
        for _ in range(generator.integers(1, 2 * devices + 1)):
            count = min(len(reachable), int(generator.integers(1, 4)))
            after: list[int] = []
            if count:
                after = sorted(generator.choice(reachable, count, replace=False).tolist())
            device, products = int(generator.integers(devices)), int(generator.integers(4))
            nodes.append(Node(device, tuple(after), products))
    return tuple(nodes)


def device_matrices(size: int, devices: int) -> list[np.ndarray]:
    """Draw a float32 matrix for each device, of a spectral norm of about 1."""
    generator = np.random.default_rng(0)
    drawn = [generator.standard_normal((size, size)) for _ in range(devices)]
    # The norm of a matrix of normal numbers is about 2 √size; computing it would take longer than
    # the experiment.
    return [(matrix / (2 * size**0.5)).astype(np.float32) for matrix in drawn]


def launch_graph(backend: Backend, nodes: Sequence[Node], matrices: Sequence[Array]) -> list[Array]:
    """Launch all nodes in their order, and return their values.

    There is a copy for each dependency on another device.
    """
    values: list[Array] = []
    for node in nodes:
        device = backend.devices[node.device]
        operands = []
        for earlier in node.after:
            value = values[earlier]
            if nodes[earlier].device != node.device:
                value = backend.copy_to(value, device)
            operands.append(value)
        task = partial(compute, backend.ops, node.products)
        values.append(backend.launch(task, matrices[node.device], *operands))
    return values


def program_of(nodes: tuple[Node, ...], size: int) -> Program:
    """Make the program that loads a matrix on every device and computes a graph."""

    def inputs(backend: Backend) -> list[Array]:
        matrices = device_matrices(size, len(backend.devices))
        return [
            backend.asarray(matrix, device)
            for matrix, device in zip(matrices, backend.devices, strict=True)
        ]

    return Program(inputs, lambda backend, matrices: launch_graph(backend, nodes, matrices))


def compute(ops: Ops, products: int, matrix: Array, *operands: Array) -> Array:
    """Average the operands, and multiply by the matrix `products` times.

    Without operands the matrix takes their place.
    """
    terms = operands or (matrix,)
    value = ops.multiply(reduce(ops.add, terms), 1 / len(terms))
    for _ in range(products):
        value = ops.matmul(value, matrix)
    return value


def expected(nodes: Sequence[Node], matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute the same values with NumPy, one node after the other, in double precision."""
    values: list[np.ndarray] = []
    for node in nodes:
        matrix = matrices[node.device].astype(np.float64)
        value = matrix
        if node.after:
            value = np.mean([values[earlier] for earlier in node.after], axis=0)
        values.append(value @ np.linalg.matrix_power(matrix, node.products))
    return values


def tasks_of(nodes: Sequence[Node]) -> tuple[list[Task], list[int]]:
    """Return the tasks that `launch_graph` launches, and how many operations each has.

    Their devices are numbers.
    """
    tasks: list[Task] = []
    operations: list[int] = []
    position_of: list[int] = []
    for node in nodes:
        after: list[int] = []
        for earlier in node.after:
            if nodes[earlier].device != node.device:
                after.append(len(tasks))
                tasks.append(Task("copy", str(node.device), "copy", (position_of[earlier],)))
                operations.append(1)
            else:
                after.append(position_of[earlier])
        position_of.append(len(tasks))
        tasks.append(Task("compute", str(node.device), "compute", tuple(after)))
        # The operands are added up, the sum is divided by their number, and multiplied.
        additions = max(0, len(node.after) - 1)
        operations.append(additions + 1 + node.products)
    return tasks, operations


def broken_in_diamonds(repetition: Repetition) -> Tally:
    """Count the dependencies of the diamonds that were broken."""
    return broken_dependencies(*tasks_of(diamond(repetition.devices)), repetition)


@dataclass(frozen=True)
class Scheduled:
    """A program's tasks, each with the median of its own seconds, and what follows from them.

    The program's two cases are used, too.
    """

    tasks: tuple[Task, ...]
    bounds: Bounds
    bound_fraction: Formula
    """The bound over the time freely scheduled."""


def time_programs(trial: Trial, programs: Mapping[str, Program]) -> list[Scheduled]:
    """Time programs with a wait after every operation and with none; find the first one's bounds.

    The names of a program's cases begin with its own. Its bare time is that of the device with the
    most to compute: what passes between devices, and waiting for each other, is a matter of
    scheduling.
    """
    recorded: dict[str, dict[float, tuple[Task, ...]]] = {name: {} for name in programs}

    def one_by_one(name: str) -> Timing:
        tasks = without_loads(record(trial.backend, programs[name], one_by_one=True))
        seconds = work_seconds(tasks)
        recorded[name][seconds] = tasks
        return seconds, seconds

    def freely(name: str) -> Timing:
        inputs = programs[name].inputs(trial.backend)
        return measure(trial.backend, partial(programs[name].run, trial.backend, inputs))

    for name, program in programs.items():
        units = works_of_step(trial.backend, program.launch, as_unit=trial.backend.ops.as_unit)
        trial.time(name + ONE_BY_ONE, take=partial(one_by_one, name), bare=units)
        trial.time(name + FREE, take=partial(freely, name), bare=units)
    trial.run(0.85)
    scheduled = [_scheduled(trial, name, runs) for name, runs in recorded.items()]
    first = next(iter(programs))
    trial.found_by(BOUND_FRACTION.name, scheduled[0].bound_fraction)
    trial.found_by(SPEEDUP.name, ratio(first + ONE_BY_ONE, first + FREE))
    for bound in LOWER_BOUND:
        trial.found(bound, getattr(scheduled[0].bounds, bound.removesuffix("_seconds")))
    return scheduled


def _scheduled(trial: Trial, name: str, runs: Mapping[float, tuple[Task, ...]]) -> Scheduled:
    separate, free = name + ONE_BY_ONE, name + FREE
    # Of the rounds that count, each by the seconds that it took.
    rounds = [runs[seconds] for seconds in trial.cases[separate].seconds]
    tasks = []
    for in_rounds in zip(*rounds, strict=True):
        seconds = median(task.seconds for task in in_rounds)
        tasks.append(replace(in_rounds[-1], seconds=seconds))
    bounds = bounds_of(tasks, places(trial.backend), trial.backend.workers_per_device)
    # The bound is made of the times one by one, and as uncertain as they are.
    share = bounds.seconds / trial.cases[separate].median
    return Scheduled(tuple(tasks), bounds, lambda times: share * times[separate] / times[free])


def places(backend: Backend) -> int:
    """Count what can work at once: all GPUs, and the CPU devices' workers.

    The latter are no more than there are cores for.
    """
    on_cpus = sum(device.kind == "cpu" for device in backend.devices)
    workers = min(
        on_cpus * backend.workers_per_device,
        max(1, available_cores() // backend.threads_per_device),
    )
    return len(backend.devices) - on_cpus + workers


BOUND_FRACTION = Metric(
    "bound_fraction",
    means=(
        "the least time that any schedule needs over the time taken: 1 is as fast as any could be"
    ),
    limits=(0.0, 1.0),
    bands=(
        Band(LOWEST, "slower", "Slower than the fastest schedule"),
        Band(0.8, "near", "About as fast as any schedule can be"),
        Band(
            1.25,
            "beyond",
            "Faster than the bound, since an operation that is timed separately is also waited for",
        ),
    ),
)
SPEEDUP = Metric(
    "speedup",
    bands=(
        Band(LOWEST, "cost", "Launching without waits in between cost time"),
        Band(0.9, "no-difference", "Launching without waits in between made little difference"),
        Band(1.1, "paid", "Launching without waits in between paid"),
    ),
)
LOWER_BOUND = {
    "critical_path_seconds": "A shorter chain of dependent operations: no number of devices or "
    "workers beats it.",
    "busiest_device_seconds": "Less work on the busiest device, or a second worker for its queue "
    "(--workers 2).",
    "work_per_device_seconds": "More devices that can work at once (--devices), with a core for "
    "each.",
}
"""The bounds, and what would lower the largest one."""


def waits_in_order(answered: Answered) -> bool:
    """Return whether a second worker could start an operation behind one that waits."""
    in_order = answered.result.backend["workers_per_device"] == 1 and not answered.on_gpus
    return (
        in_order
        and answered.is_in(BOUND_FRACTION.name, "slower")
        and answered.is_in(SPEEDUP.name, "paid")
    )


CHANGES = (
    with_queue("operations that do not depend on each other should run at the same time"),
    Change(
        lambda answered: answered.is_in(BOUND_FRACTION.name, "near"),
        lambda answered: LOWER_BOUND[max(LOWER_BOUND, key=answered.result.metrics.__getitem__)],
    ),
    LESS_NOISE,
    Change(
        waits_in_order,
        "A second worker for each queue (--workers 2), which passes over what has to wait.",
    ),
)
RANDOM = replace(BOUND_FRACTION, name="random_bound_fraction", about="random graphs")

EXPERIMENT = Experiment(
    name="dependencies",
    summary="Are tasks across devices right, and fast?",
    position=6,
    exercises=(Exercise(5, "Are tasks with complex dependencies right, and faster in parallel?"),),
    program=program,
    case=DIAMOND + FREE,
    metrics=(BOUND_FRACTION, RANDOM, SPEEDUP),
    counts=(
        replace(BROKEN, case=DIAMOND + FREE, tally=broken_in_diamonds),
        replace(BESIDE, case=DIAMOND + FREE, metric=SPEEDUP.name),
    ),
    changes=(*CHANGES, larger("size", "Larger matrices", "handing operations over matters less")),
    settings=OF_COPIES,
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
)
