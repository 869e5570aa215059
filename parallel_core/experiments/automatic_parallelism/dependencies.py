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
from functools import partial
from statistics import median
from typing import Annotated, NamedTuple

from backends import Backend
from backends.host import available_cores
from parallel_core.experiments.automatic_parallelism.task_graphs import (
    device_matrices,
    diamond,
    expected,
    program_of,
    random_graph,
    tasks_of,
)
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
from parallel_core.experiments.runner.formulas import Formula, Times, Values, median_of, ratio
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Choice, Chosen
from parallel_core.experiments.runner.tallies import Repetition, Tally
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.workloads import (
    Program,
    larger_size_to_count,
    record,
    size_for,
    units_of_step,
)
from parallel_core.measurement.result import Result
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
"""About how long a multiplication takes: long beside its call and a wait for it."""
LARGEST_CHECKED = 1024
"""The largest size that is checked: NumPy would take a minute for the matrices of a GPU."""
SIZE = Chosen(
    "Side of the matrices. Default: chosen.",
    how=lambda trial: Choice(size_for(trial, 10 * MULTIPLICATION_SECONDS, 10), "time"),
)


def program(trial: Trial, size: Annotated[int, SIZE]) -> None:
    """Time task graphs one operation at a time and freely scheduled, and find their bounds."""
    count = len(trial.devices)
    graphs = {DIAMOND: diamond(count)}
    for seed in (1, 2, 3):
        graphs[f"random {seed}, "] = random_graph(seed, count)
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


def broken_in_diamonds(repetition: Repetition) -> Tally:
    """Count the dependencies of the diamonds that were broken."""
    tasks, operations = tasks_of(diamond(repetition.devices))
    return broken_dependencies(tasks, operations, repetition)


@dataclass(frozen=True)
class Scheduled:
    """A timed program: its tasks and the bounds of its time."""

    tasks: tuple[Task, ...]
    """The tasks, each with the median of the seconds that it took separately."""
    bounds: Bounds
    bound_fraction: Formula
    """The largest bound over the time of the program freely scheduled."""


class OneByOne(NamedTuple):
    """A timing of a program with a wait after every operation."""

    seconds: float
    tasks: tuple[Task, ...]


def time_programs(trial: Trial, programs: Mapping[str, Program]) -> list[Scheduled]:
    """Time programs with a wait after every operation and with none; keep the first one's figures.

    The names of a program's cases begin with the name of the program. The bare time of a program is
    that of the device with the most to compute: copies, and waits of devices for each other, belong
    to the schedule.
    """
    recorded: dict[str, list[OneByOne]] = {name: [] for name in programs}

    def one_by_one(name: str) -> Timing:
        tasks = without_loads(record(trial.backend, programs[name], one_by_one=True))
        seconds = work_seconds(tasks)
        recorded[name].append(OneByOne(seconds, tasks))
        return seconds, seconds

    def freely(name: str) -> Timing:
        inputs = programs[name].inputs(trial.backend)
        return measure(trial.backend, partial(programs[name].run, trial.backend, inputs))

    for name, program in programs.items():
        units = units_of_step(trial.backend, program.launch, as_unit=trial.backend.ops.as_unit)
        trial.time(name + ONE_BY_ONE, take=partial(one_by_one, name), bare=units)
        trial.time(name + FREE, take=partial(freely, name), bare=units)
    trial.run(0.85)
    scheduled = [_scheduled(trial, name, timings) for name, timings in recorded.items()]
    first = next(iter(programs))
    trial.found_by(BOUND_FRACTION.name, scheduled[0].bound_fraction)
    trial.found_by(SPEEDUP.name, ratio(first + ONE_BY_ONE, first + FREE))
    for bound in LOWER_BOUND:
        trial.found(bound, getattr(scheduled[0].bounds, bound.removesuffix("_seconds")))
    return scheduled


def _scheduled(trial: Trial, name: str, timings: Sequence[OneByOne]) -> Scheduled:
    """Return a program's tasks and bounds, from its timings one by one.

    A task takes the median of the rounds that the case kept.
    """
    one_by_one, free = name + ONE_BY_ONE, name + FREE
    kept_seconds = trial.cases[one_by_one].seconds
    kept = [timing.tasks for timing in timings if timing.seconds in kept_seconds]
    tasks = []
    for task_in_rounds in zip(*kept, strict=True):
        seconds = median(task.seconds for task in task_in_rounds)
        # But for its time a task is the same in every round.
        tasks.append(replace(task_in_rounds[-1], seconds=seconds))
    bounds = bounds_of(tasks, places(trial.backend), trial.backend.workers_per_device)
    # The bound is a share of the time one by one, because it is as uncertain as that time.
    bound_share = bounds.seconds / trial.cases[one_by_one].median

    def bound_fraction(times: Times) -> Values:
        return bound_share * times[one_by_one] / times[free]

    return Scheduled(tuple(tasks), bounds, bound_fraction)


def places(backend: Backend) -> int:
    """Return how many operations can run at once: one on each GPU, and one by each CPU worker.

    Only as many CPU workers count as there are cores for.
    """
    cpus = sum(device.kind == "cpu" for device in backend.devices)
    gpus = len(backend.devices) - cpus
    workers = cpus * backend.workers_per_device
    workers_with_cores = max(1, available_cores() // backend.threads_per_device)
    return gpus + min(workers, workers_with_cores)


BOUND_FRACTION = Metric(
    "bound_fraction",
    means=(
        "the least time that any schedule needs over the time taken: 1 is as fast as any could be"
    ),
    title="Least time over taken",
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


def where_and_why(result: Result) -> str:
    """Say with which matrices a speed-up was found, and why, if that was counted."""
    side = result.parameters["size"]
    ran_beside = result.bands.get(BESIDE.name) in ("partly", "parallel")
    is_faster = result.bands.get(SPEEDUP.name) == "paid"
    because = ", because tasks ran beside others" if ran_beside and is_faster else ""
    return f"with matrices of {side} x {side}{because}"


SPEEDUP = Metric(
    "speedup",
    means="the speed-up of all tasks without waits in between: 1 is no gain",
    bands=(
        Band(LOWEST, "cost", "Slower than one task at a time"),
        Band(0.9, "no-difference", "About as fast as one task at a time"),
        Band(1.1, "paid", "Faster than one task at a time"),
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
    """Return whether one CPU worker per device, which runs its queue in order, may be the limit."""
    has_one_worker = answered.result.backend["workers_per_device"] == 1
    if not has_one_worker or answered.on_gpus:
        return False
    is_slow = answered.is_in(BOUND_FRACTION.name, "slower")
    scheduling_paid = answered.is_in(SPEEDUP.name, "paid")
    return is_slow and scheduling_paid


def lower_the_largest_bound(answered: Answered) -> str:
    """Say what would lower the largest of the bounds."""
    largest = max(LOWER_BOUND, key=answered.result.metrics.__getitem__)
    return LOWER_BOUND[largest]


CHANGES = (
    with_queue("operations that do not depend on each other should run at the same time"),
    LESS_NOISE,
    Change(
        lambda answered: answered.is_in(BOUND_FRACTION.name, "near"),
        lower_the_largest_bound,
    ),
    Change(
        waits_in_order,
        "A second worker for each queue (--workers 2), which passes over what has to wait.",
    ),
)
RANDOM = replace(
    BOUND_FRACTION, name="random_bound_fraction", about="random graphs", title="Of random graphs"
)

EXPERIMENT = Experiment(
    name="dependencies",
    question="Are tasks across devices right, and faster?",
    position=6,
    exercises=(Exercise(5, "Are tasks with complex dependencies right, and faster in parallel?"),),
    program=program,
    case=DIAMOND + FREE,
    metrics=(replace(SPEEDUP, about=where_and_why), BOUND_FRACTION, RANDOM),
    counts=(
        replace(BROKEN, case=DIAMOND + FREE, tally=broken_in_diamonds),
        replace(BESIDE, case=DIAMOND + FREE, metric=SPEEDUP.name),
    ),
    changes=(*CHANGES, larger("size", "Larger matrices", "handing operations over matters less")),
    settings=OF_COPIES,
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
)
