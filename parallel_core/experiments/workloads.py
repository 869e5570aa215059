"""Workloads of experiments: multiplications, increments, layers, programs of several operations.

How much of it a run launches is chosen by one rule: three rounds fit the budget, issuing is a small
part, few launches are in flight.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from numbers import Real
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from backends import Array, Backend, Device, Ops
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.parameters import Choice
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.progress import tell
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.task_graph import Task
from parallel_core.measurement.timing import Timing, measure

MULTIPLICATIONS = 25
"""The multiplications on a device at the most: engines bound what may be in flight, JAX to 32."""
RUN_SECONDS = 0.2
"""The seconds that a device takes for them with a chosen size, about."""
ROUNDS_SHARE = 0.6
"""The share of the budget into which the fewest rounds fit.

Choosing and checking take time too, and rounds vary.
"""
MOST_IN_UNIT = 500
"""Operations in one unit at the most.

A framework may take milliseconds for each to make a unit of them.
"""
PROBED_SIZE, PROBED, PROBES = 256, 5, 8
"""The size, the multiplications and the tries from which a size is chosen."""
FEW_PROBES = 3
"""The tries where they take long."""
BESIDE = "multiplications beside the rest"
LARGEST_SIZE = 8192
COUNTED_SIZE = 640
"""The smallest side of matrices whose multiplications are counted on CPUs, unless it is given.

Each takes longer than the turns, some milliseconds long, in which programs share a core. Of shorter
ones several are done in one turn, as if the other device or the copies had waited.
"""
MOST_CALLS = 1000
"""How many calls on one element tell what one costs."""
FEWEST_TIMINGS = 1 + FEWEST_FOR_A_VERDICT
"""How often everything is timed at the least for a verdict: a warm-up, and the fewest rounds."""


def multiplied(trial: Trial, x: Array, count: int = 1) -> tuple[Array, ...]:
    """Launch independent multiplications of a matrix with itself, on its device."""
    return tuple(trial.backend.launch(trial.backend.ops.matmul, x, x) for _ in range(count))


def multiplications(
    trial: Trial, x: Array, count: int = MULTIPLICATIONS, device: Device | None = None
) -> Work:
    """Multiply a matrix with itself `count` times, independently: the book's `run`.

    What their calls take by themselves is timed on the device, if it is given.
    """
    matmul = trial.backend.ops.matmul

    def unit_of(length: int) -> Callable[[Array], Array]:
        return lambda matrix: tuple(matmul(matrix, matrix) for _ in range(length))

    return _repeated(trial, multiplied, unit_of, x, count, device)


def ones(trial: Trial, device: Device, count: int = 1) -> Array:
    """Load a row of ones; what an operation takes on a single one is overhead."""
    return trial.backend.asarray(np.ones((1, count), dtype=np.float32), device)


def _repeated(
    trial: Trial,
    launched: Callable[[Trial, Array, int], object],
    unit_of: Callable[[int], Callable[[Array], Array]],
    x: Array,
    count: int,
    device: Device | None,
) -> Work:
    """Launch `count` operations on a value; with a device, their calls on one element too.

    `unit_of` returns the function of a number of operations that is made a unit.
    """
    work = _with_units(trial, launched, unit_of, x, count)
    if device is None:
        return work
    few = min(count, MOST_CALLS)
    calls = _with_units(trial, launched, unit_of, ones(trial, device), few)
    return replace(work, calls=replace(calls, times=count / few))


def _with_units(
    trial: Trial,
    launched: Callable[[Trial, Array, int], object],
    unit_of: Callable[[int], Callable[[Array], Array]],
    x: Array,
    count: int,
) -> Work:
    backend = trial.backend
    lengths = [min(MOST_IN_UNIT, count - start) for start in range(0, count, MOST_IN_UNIT)]
    units = {length: backend.ops.as_unit(unit_of(length)) for length in set(lengths)}

    def launch_units() -> list[Array]:
        return [backend.launch(units[length], x) for length in lengths]

    return Work(partial(launched, trial, x, count), launch_units)


def seconds_of_one(trial: Trial, size: int, count: int = PROBED) -> float:
    """Measure the seconds of one multiplication on the first device.

    That is the median of a few tries of `count`. Not the fastest: what is chosen by it must fit
    into a budget on a busy machine too.
    """
    x = trial.normal(size, trial.devices[0])
    # Compiles, and finds what only the first call needs.
    trial.backend.launch(trial.backend.ops.matmul, x, x)
    _, done = median_timing(trial, partial(multiplied, trial, x, count))
    return done / count


def median_timing(trial: Trial, launch: Callable[[], object]) -> Timing:
    """Return the medians of a few timings of a launch.

    Something like it has warmed up the devices.
    """
    timings = [measure(trial.backend, launch) for _ in range(FEW_PROBES)]
    if sum(done for _, done in timings) < RUN_SECONDS / 2:
        timings += [measure(trial.backend, launch) for _ in range(PROBES - FEW_PROBES)]
    return median(issued for issued, _ in timings), median(done for _, done in timings)


def size_for(trial: Trial, seconds: float, count: int) -> int:
    """Choose the size at which `count` multiplications take about these seconds on a device.

    It is a multiple of 8.
    """
    size = 128
    # The time grows with the cube of the size, roughly; the second and third estimates correct the
    # first.
    for estimate in range(3):
        tell("choosing a size", estimate / 3)
        factor = seconds / (count * seconds_of_one(trial, size))
        eighths = round(size * factor ** (1 / 3) / 8)
        size = max(8, 8 * eighths)
    return size


def larger_size_to_count(trial: Trial, case: str, size: int) -> int | None:
    """Return the side of the matrices with which a case is counted, if the run chose a `size` to
    time it that is too small for that; else None.
    """
    if size >= COUNTED_SIZE or not trial.is_counted(case):
        return None
    # On a GPU an operation is not interrupted by other programs.
    is_on_cpu = trial.devices[0].kind == "cpu"
    is_chosen = "size" in trial.described.get("chosen_by", {})
    return COUNTED_SIZE if is_on_cpu and is_chosen else None


def time_of(trial: Trial, usual: float, timings: float) -> Choice:
    """Choose the seconds of one of the timings of a round.

    They are the usual ones, or fewer for three rounds to fit.
    """
    allowed = ROUNDS_SHARE * trial.budget / FEWEST_TIMINGS / timings
    if usual <= allowed:
        return Choice(usual, "time")
    return Choice(allowed, "budget")


def size_for_run(trial: Trial, timings: float, share: float = 1.0) -> Choice:
    """Choose the size with which the first device takes about 0.2 s for all multiplications.

    With a `share` it takes that share of it, and less if the fewest rounds of these timings would
    not fit the budget.
    """
    seconds = time_of(trial, share * RUN_SECONDS, timings)
    return Choice(size_for(trial, seconds.value, MULTIPLICATIONS), seconds.rule)


def size_up_to(trial: Trial, seconds: float, wanted: int) -> Choice:
    """Choose the wanted size, or the largest multiple of 8 that takes no longer than `seconds`."""
    tell("choosing a size", 0.0)
    # Larger multiplications use a device better than these, so they take rather less than is
    # foreseen.
    seconds_by_cube = seconds_of_one(trial, PROBED_SIZE) / PROBED_SIZE**3
    largest = int((max(0.0, seconds) / seconds_by_cube) ** (1 / 3))
    if wanted <= largest:
        return Choice(wanted, "largest")
    return Choice(max(8, largest // 8 * 8), "budget")


def geometric(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    """Return `first`, and what follows from it by multiplying, up to `last`."""
    numbers = [first]
    while numbers[-1] * factor <= last:
        numbers.append(numbers[-1] * factor)
    return tuple(numbers)


def doublings(last: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … up to a number, and that number itself."""
    return tuple(sorted({*geometric(1, last), last}))


def time_beside(trial: Trial, *works: Work) -> None:
    """Register how long the first work's results take while the others go on.

    That needs a queue.
    """
    if trial.backend.engine == "async":
        trial.time(BESIDE, *works, until=lambda launched: trial.backend.wait(launched[0]), bare=())


def price_of_overlap(together: str) -> Metric:
    """Declare how much longer than the first part of a case its time beside other work is.

    `time_beside` registers that time.
    """
    return Metric(
        "price_of_overlap",
        lambda times: times[BESIDE] / times.parts(together)[0] - 1,
        means="how much longer multiplications take while other work goes on: 0 is no longer than "
        "alone",
        limits=(-1.0, inf),
        in_percent=True,
    )


def chained(trial: Trial, x: Array, count: int = MULTIPLICATIONS) -> Work:
    """Multiply by a matrix `count` times, each multiplication after the one before."""

    def chain(multiply: Callable[[Array, Array], Array], x: Array) -> Array:
        y = x
        for _ in range(count):
            y = multiply(y, x)
        return y

    backend, matmul = trial.backend, trial.backend.ops.matmul
    launch_each = partial(chain, partial(backend.launch, matmul), x)
    unit = backend.ops.as_unit(partial(chain, matmul))
    return Work(launch_each, lambda: backend.launch(unit, x))


def incremented(trial: Trial, x: Array, count: int) -> Array:
    """Launch `count` additions of 1 to an array, and return the last result.

    Each makes a new array.
    """
    for _ in range(count):
        y = trial.backend.launch(trial.backend.ops.add, x, 1.0)
    return y


def increments(trial: Trial, x: Array, count: int, device: Device) -> Work:
    """Add 1 to an array on a device `count` times."""
    add = trial.backend.ops.add

    def chain(length: int) -> Callable[[Array], Array]:
        # Each increments the one before, so that none has to be kept and none can be left out.
        def increment(y: Array) -> Array:
            for _ in range(length):
                y = add(y, 1.0)
            return y

        return increment

    return _repeated(trial, incremented, chain, x, count, device)


def dense(ops: Ops, parameters: Array, x: Array) -> Array:
    """Multiply by the weight and add the bias."""
    weight, bias = parameters
    return ops.add(ops.matmul(x, weight), bias)


def hidden(ops: Ops, parameters: Array, x: Array) -> Array:
    """Compute a dense layer with ReLU."""
    return ops.relu(dense(ops, parameters, x))


def pull_back(ops: Ops, fn: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function (parameters, upstream, *rest) -> gradients of fn(parameters, *rest).

    `upstream` is the gradient by the function's result, which is computed again: nothing is kept
    from the forward pass. The gradients are by the parameters.
    """

    def inner_product(parameters: Array, upstream: Array, *rest: Array) -> Array:
        return ops.total(ops.multiply(fn(parameters, *rest), upstream))

    differentiate = ops.value_and_grad(inner_product)
    return lambda *args: differentiate(*args)[1]


class Program(NamedTuple):
    """Operations on a backend: `inputs` loads what they need, untimed, and `run` launches them."""

    inputs: Callable[[Backend], Any]
    run: Callable[[Backend, Any], Array]

    def launch(self, backend: Backend) -> Array:
        """Load the inputs and launch the operations."""
        return self.run(backend, self.inputs(backend))


def record(backend: Backend, program: Program, one_by_one: bool = False) -> tuple[Task, ...]:
    """Run a program and return what it did, the loading of its inputs included."""
    recording = Recording(backend, one_by_one)
    _kept = program.launch(recording)
    return recording.tasks


def units_of_step(
    backend: Backend,
    step: Callable[[Backend], object],
    times: int = 1,
    as_unit: Callable[[Callable[..., Array]], Callable[..., Array]] = lambda compute: compute,
) -> list[Work]:
    """Take a step once, and return each device's share of it as a unit.

    The units are for a case that takes the step `times`. It is taken on a recording, and a unit
    launches all that the step launched on a device again, as one function with the same arguments.
    Copies and sums between devices are left out: they are exchange, and belong to the schedule. A
    unit returns all that was launched, because a framework that compiles it leaves out what nobody
    can see; what two launches have in common may be merged, unless `ops.as_unit` is given. MXNet
    has no graph of gradients, and queues a unit's operators one by one.
    """
    launches_by_device: dict[Device, list[_Launched]] = {}

    def note(device: Device, fn: Callable[..., Array], args: tuple[Any, ...]) -> None:
        launches_by_device.setdefault(device, []).append(_Launched(fn, args))

    step(Recording(backend, on_launch=note))
    # What is timed later must not wait for it.
    backend.waitall()
    units = []
    for launches in launches_by_device.values():
        unit = as_unit(partial(_relaunch, launches))
        arrays = [x for launched in launches for x in launched.arrays]
        launch = partial(backend.launch, unit, *arrays)
        units.append(Work(launch, launch, times))
    return units


class _Launched(NamedTuple):
    """A call that a step launched."""

    fn: Callable[..., Array]
    args: tuple[Any, ...]

    @property
    def arrays(self) -> list[Array]:
        """The arguments that are no numbers."""
        return [x for x in self.args if not isinstance(x, Real)]


def _relaunch(launches: Sequence[_Launched], *arrays: Array) -> tuple[Array, ...]:
    """Compute what was launched, with other arrays in the places of its own."""
    remaining = iter(arrays)
    results = []
    for fn, args in launches:
        filled = [x if isinstance(x, Real) else next(remaining) for x in args]
        results.append(fn(*filled))
    return tuple(results)
