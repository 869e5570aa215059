"""What experiments launch: multiplications, increments, layers, and programs of several operations;
and how much of it.

A run's work is chosen by one rule: three rounds fit the budget, issuing is a small part, few
launches are in flight.
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
"""On a device at the most: engines bound what may be in flight, JAX to 32."""
RUN_SECONDS = 0.2
"""About how long a chosen size makes a device take for them."""
ROUNDS_SHARE = 0.6
"""The share of the budget into which the fewest rounds fit: choosing and checking take time too,
and rounds vary.
"""
MOST_IN_UNIT = 500
"""Operations in one unit at the most: a framework may take milliseconds for each to make a unit of
them.
"""
PROBED_SIZE, PROBED, PROBES = 256, 5, 8
"""The size, the multiplications and the tries from which a size is chosen."""
FEW_PROBES = 3
"""The tries where they take long."""
BESIDE = "multiplications beside the rest"
LARGEST_SIZE = 8192
MOST_CALLS = 1000
"""So many calls on one element tell what one costs."""
FEWEST_TIMINGS = 1 + FEWEST_FOR_A_VERDICT
"""How often everything is timed at the least for a verdict: a warm-up, and the fewest rounds."""


def multiplied(trial: Trial, x: Array, count: int = 1) -> tuple[Array, ...]:
    """Launch independent multiplications of a matrix with itself, on its device."""
    return tuple(trial.backend.launch(trial.backend.ops.matmul, x, x) for _ in range(count))


def multiplications(
    trial: Trial, x: Array, count: int = MULTIPLICATIONS, device: Device | None = None
) -> Work:
    """Multiply a matrix with itself so many times, the multiplications independent: the book's
    `run`.

    What their calls take by themselves is timed on the device, if it is given.
    """
    matmul = trial.backend.ops.matmul

    def some(length: int) -> Callable[[Array], Array]:
        return lambda matrix: tuple(matmul(matrix, matrix) for _ in range(length))

    return _repeated(trial, multiplied, some, x, count, device)


def ones(trial: Trial, device: Device, count: int = 1) -> Array:
    """Load a row of ones; what an operation takes on a single one is overhead."""
    return trial.backend.asarray(np.ones((1, count), dtype=np.float32), device)


def _repeated(
    trial: Trial,
    launched: Callable[[Trial, Array, int], object],
    some: Callable[[int], Callable[[Array], Array]],
    x: Array,
    count: int,
    device: Device | None,
) -> Work:
    """Launch `count` operations on a value, and as units of `some`; with a device, their calls on
    one element too.
    """

    def of(x: Array, count: int) -> Work:
        lengths = [min(MOST_IN_UNIT, count - first) for first in range(0, count, MOST_IN_UNIT)]
        units = {length: trial.backend.ops.as_unit(some(length)) for length in set(lengths)}
        return Work(
            partial(launched, trial, x, count),
            lambda: [trial.backend.launch(units[length], x) for length in lengths],
        )

    if device is None:
        return of(x, count)
    few = min(count, MOST_CALLS)
    return replace(of(x, count), calls=replace(of(ones(trial, device), few), times=count / few))


def seconds_of_one(trial: Trial, size: int, count: int = PROBED) -> float:
    """Measure the seconds of one multiplication on the first device, the median of a few tries of
    so many.

    Not the fastest: what is chosen by it must fit into a budget on a busy machine too.
    """
    x = trial.normal(size, trial.devices[0])
    # Compiles, and finds what only the first call needs.
    trial.backend.launch(trial.backend.ops.matmul, x, x)
    return median_timing(trial, partial(multiplied, trial, x, count))[1] / count


def median_timing(trial: Trial, launch: Callable[[], object]) -> Timing:
    """Return the medians of a few timings of a launch, of which something like it has warmed up the
    devices.
    """
    timings = [measure(trial.backend, launch) for _ in range(FEW_PROBES)]
    if sum(done for _, done in timings) < RUN_SECONDS / 2:
        timings += [measure(trial.backend, launch) for _ in range(PROBES - FEW_PROBES)]
    issued, done = (median(seconds) for seconds in zip(*timings, strict=True))
    return issued, done


def size_for(trial: Trial, seconds: float, count: int) -> int:
    """Choose the size, a multiple of 8, at which `count` multiplications take about so many seconds
    on a device.
    """
    size = 128
    # The time grows with the cube of the size, roughly; the second and third estimates correct the
    # first.
    for estimate in range(3):
        tell("choosing a size", estimate / 3)
        taken = count * seconds_of_one(trial, size)
        size = max(8, round(size * (seconds / taken) ** (1 / 3) / 8) * 8)
    return size


def time_of(trial: Trial, usual: float, timings: float) -> Choice:
    """Choose the seconds of one of so many timings of a round: the usual ones, or less for three
    rounds to fit.
    """
    allowed = ROUNDS_SHARE * trial.budget / FEWEST_TIMINGS / timings
    return Choice(usual, "time") if usual <= allowed else Choice(allowed, "budget")


def size_for_run(trial: Trial, timings: float, share: float = 1.0) -> Choice:
    """Choose the size with which the first device takes about 0.2 s, or a share of that, for all
    multiplications.

    They take less if the fewest rounds of so many such timings would not fit the budget.
    """
    seconds = time_of(trial, share * RUN_SECONDS, timings)
    return Choice(size_for(trial, seconds.value, MULTIPLICATIONS), seconds.rule)


def size_up_to(trial: Trial, seconds: float, wanted: int) -> Choice:
    """Choose the size that is wanted, or the largest multiple of 8 below whose multiplication takes
    no longer.
    """
    tell("choosing a size", 0.0)
    # Larger multiplications use a device better than these, so they take rather less than is
    # foreseen.
    foreseen = seconds_of_one(trial, PROBED_SIZE) / PROBED_SIZE**3
    largest = int((max(0.0, seconds) / foreseen) ** (1 / 3))
    return (
        Choice(wanted, "largest")
        if wanted <= largest
        else Choice(max(8, largest // 8 * 8), "budget")
    )


def geometric(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    """Return `first`, and what follows from it by multiplying, up to `last`."""
    return (first, *geometric(first * factor, last, factor)) if first * factor <= last else (first,)


def doublings(last: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … up to a number, and that number itself."""
    return tuple(sorted({*geometric(1, last), last}))


def time_beside(trial: Trial, *works: Work) -> None:
    """Register how long the results of the first of some works take while the rest goes on; that
    needs a queue.
    """
    if trial.backend.engine == "async":
        trial.time(BESIDE, *works, until=lambda launched: trial.backend.wait(launched[0]), bare=())


def price_of_overlap(together: str) -> Metric:
    """Declare how much longer what was registered by `time_beside` takes than the first part of a
    case.
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
    """Multiply by a matrix so many times, each multiplication after the one before."""

    def chain(multiply: Callable[[Array, Array], Array], x: Array) -> Array:
        y = x
        for _ in range(count):
            y = multiply(y, x)
        return y

    backend, matmul = trial.backend, trial.backend.ops.matmul
    unit = backend.ops.as_unit(partial(chain, matmul))
    return Work(lambda: chain(partial(backend.launch, matmul), x), lambda: backend.launch(unit, x))


def incremented(trial: Trial, x: Array, count: int) -> Array:
    """Launch so many additions of 1 to an array; each makes a new one, of which the last is
    returned.
    """
    for _ in range(count):
        y = trial.backend.launch(trial.backend.ops.add, x, 1.0)
    return y


def increments(trial: Trial, x: Array, count: int, device: Device) -> Work:
    """Add 1 to an array on a device so many times."""
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
    """Make the function (parameters, upstream, *rest) -> the gradients by the parameters of
    fn(parameters, *rest).

    `upstream` is the gradient by the function's result, which is computed again: nothing is kept
    from the forward pass.
    """
    differentiate = ops.value_and_grad(
        lambda parameters, upstream, *rest: ops.total(ops.multiply(fn(parameters, *rest), upstream))
    )
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


def works_of_step(
    backend: Backend,
    step: Callable[[Backend], object],
    times: int = 1,
    as_unit: Callable[[Callable[..., Array]], Callable[..., Array]] = lambda compute: compute,
) -> list[Work]:
    """Take a step once, and return each device's share of it as a unit, for a case that takes it so
    many times.

    It is taken on a recording, and a unit launches all that the step launched on a device again, as
    one function with the same arguments. Copies and sums between devices are left out: they are
    exchange, and belong to the schedule. A unit returns all that was launched, because a framework
    that compiles it leaves out what nobody can see; what two launches have in common may be merged,
    unless `ops.as_unit` is given. MXNet has no graph of gradients, and queues a unit's operators
    one by one.
    """
    launched: dict[Device, list[tuple[Callable[..., Array], tuple[Any, ...]]]] = {}
    step(
        Recording(
            backend,
            on_launch=lambda device, fn, args: launched.setdefault(device, []).append((fn, args)),
        )
    )
    # What is timed later must not wait for it.
    backend.waitall()

    def as_one(functions: Sequence[Callable[..., Array]], arguments: Sequence[Array]) -> Work:
        def compute(*arrays: Array) -> Array:
            given = iter(arrays)
            fill = [
                tuple(one if isinstance(one, Real) else next(given) for one in args)
                for args in arguments
            ]
            return tuple(fn(*args) for fn, args in zip(functions, fill, strict=True))

        arrays = [one for args in arguments for one in args if not isinstance(one, Real)]
        launch = partial(backend.launch, as_unit(compute), *arrays)
        return Work(launch, launch, times)

    return [as_one(*zip(*calls, strict=True)) for calls in launched.values()]
