"""Workloads of experiments: multiplications, increments, layers, programs of several operations.

How much of it a run launches is chosen by one rule: three rounds fit the budget, issuing is a small
part, few launches are in flight.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from backends import Array, Backend, Device, Ops
from parallel_core.experiments import probing
from parallel_core.experiments.runner.formulas import Times, Values
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.parameters import Choice
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.progress import tell
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.task_graph import Task

MULTIPLICATIONS = 25
"""The multiplications on a device at the most: engines bound what may be in flight, JAX to 32."""
RUN_SECONDS = 0.2
"""About how many seconds a device takes for all multiplications of a chosen size."""
ROUNDS_SHARE = 0.6
"""The share of the budget for the fewest rounds; choosing sizes and checking need the rest."""
MOST_IN_UNIT = 500
"""The most operations in one unit: to compile it may take milliseconds for each of them."""
PROBED_SIZE, PROBED_MULTIPLICATIONS = 256, 5
"""A size is chosen from timings of 5 multiplications; `size_up_to` takes this size for them."""
BESIDE = "multiplications beside the rest"
LARGEST_SIZE = 8192
COUNTED_SIZE = 640
"""The smallest side of matrices whose multiplications are counted on CPUs, unless the user gives a
size.

Programs share a core in turns of some milliseconds, and a multiplication of this size takes longer
than a turn. Several shorter ones would be done in one turn, as if another device had waited.
"""
MOST_CALLS = 1000
"""The number of calls on one element from which the cost of a call is found, at the most."""
FEWEST_TIMINGS = 1 + FEWEST_FOR_A_VERDICT
"""The fewest timings of a case that allow a verdict: a warm-up, and the fewest rounds."""


def multiplied(trial: Trial, x: Array, count: int = 1) -> tuple[Array, ...]:
    """Launch `count` independent multiplications of a matrix with itself; return the products."""
    matmul = trial.backend.ops.matmul
    return tuple(trial.backend.launch(matmul, x, x) for _ in range(count))


def multiplications(
    trial: Trial, x: Array, count: int = MULTIPLICATIONS, device: Device | None = None
) -> Work:
    """Make the work that multiplies a matrix with itself `count` times: the book's `run`.

    If a device is given, calls on one element there show what the calls alone cost.
    """
    matmul = trial.backend.ops.matmul

    def unit_of(length: int) -> Callable[[Array], Array]:
        return lambda matrix: tuple(matmul(matrix, matrix) for _ in range(length))

    return _repeated(trial, multiplied, unit_of, x, count, device)


def ones(trial: Trial, device: Device, count: int = 1) -> Array:
    """Load a row of `count` ones; the time of an operation on a single one is overhead."""
    return trial.backend.asarray(np.ones((1, count), dtype=np.float32), device)


def _repeated(
    trial: Trial,
    launched: Callable[[Trial, Array, int], object],
    unit_of: Callable[[int], Callable[[Array], Array]],
    x: Array,
    count: int,
    device: Device | None,
) -> Work:
    """Make the work of `count` operations on `x`; with a device, also their calls on one element.

    `launched(trial, x, count)` launches the operations one by one. `unit_of(length)` returns a
    function that does `length` of them, and can be made a unit: of `MOST_IN_UNIT` at most.
    """
    backend = trial.backend

    def with_units(x: Array, count: int) -> Work:
        lengths = [min(MOST_IN_UNIT, count - start) for start in range(0, count, MOST_IN_UNIT)]
        units = {length: backend.ops.as_unit(unit_of(length)) for length in set(lengths)}
        return Work(
            partial(launched, trial, x, count),
            lambda: [backend.launch(units[length], x) for length in lengths],
        )

    work = with_units(x, count)
    if device is None:
        return work
    timed_calls = min(count, MOST_CALLS)
    calls = with_units(ones(trial, device), timed_calls)
    return replace(work, calls=replace(calls, times=count / timed_calls))


def seconds_of_one(trial: Trial, size: int, count: int = PROBED_MULTIPLICATIONS) -> float:
    """Measure the seconds of one multiplication on the first device, from launches of `count`.

    They are the median of a few timings and not the fastest: what is chosen by them must fit into
    the budget on a busy machine too. They are no fewer than any device takes.
    """
    x = trial.normal(size, trial.devices[0])
    # The first call compiles, and sets up what later calls find there.
    trial.backend.launch(trial.backend.ops.matmul, x, x)
    _, done = probing.median_timing(trial, partial(multiplied, trial, x, count))
    return max(done / count, probing.least_seconds(trial, size))


def size_for(trial: Trial, seconds: float, count: int) -> int:
    """Choose the size, a multiple of 8, at which `count` multiplications take about `seconds`.

    It is smaller if the matrices would take too much of the free memory.
    """
    size = 128
    # The time grows roughly with the cube of the size. The second and third estimates correct the
    # first one.
    for estimate in range(3):
        tell("choosing a size", estimate / 3)
        factor = seconds / (count * seconds_of_one(trial, size))
        eighths = round(size * factor ** (1 / 3) / 8)
        size = min(max(8, 8 * eighths), probing.largest_size(trial))
    return size


def larger_size_to_count(trial: Trial, case: str, size: int) -> int | None:
    """Return a larger size to count a case with, if the timed `size` is too small; else None.

    The size is too small only if the run chose it itself, and the devices are CPUs.
    """
    if size >= COUNTED_SIZE or not trial.is_counted(case):
        return None
    # On a GPU other programs do not interrupt an operation.
    is_on_cpu = trial.devices[0].kind == "cpu"
    is_chosen = "size" in trial.described.get("chosen_by", {})
    if is_on_cpu and is_chosen:
        return COUNTED_SIZE
    return None


def time_of(trial: Trial, usual: float, timings: float) -> Choice:
    """Choose the seconds of one timing, if a round has `timings` of them.

    They are the `usual` seconds, or fewer if the fewest rounds would not fit the budget.
    """
    allowed = ROUNDS_SHARE * trial.budget / FEWEST_TIMINGS / timings
    if usual <= allowed:
        return Choice(usual, "time")
    return Choice(allowed, "budget")


def size_for_run(trial: Trial, timings: float, share: float = 1.0) -> Choice:
    """Choose the size at which the first device multiplies for about `share` of 0.2 s.

    The size is smaller if the fewest rounds, of `timings` each, would not fit the budget.
    """
    seconds = time_of(trial, share * RUN_SECONDS, timings)
    return Choice(size_for(trial, seconds.value, MULTIPLICATIONS), seconds.rule)


def size_up_to(trial: Trial, seconds: float, wanted: int) -> Choice:
    """Choose the wanted size, or the largest multiple of 8 that takes no longer than `seconds`."""
    tell("choosing a size", 0.0)
    # Larger multiplications use a device better than the probed ones, so they take rather less
    # time than is predicted here.
    seconds_by_cube = seconds_of_one(trial, PROBED_SIZE) / PROBED_SIZE**3
    cube = max(0.0, seconds) / seconds_by_cube
    largest = int(cube ** (1 / 3))
    if wanted <= largest:
        return Choice(wanted, "largest")
    multiple_of_8 = largest // 8 * 8
    return Choice(max(8, multiple_of_8), "budget")


def geometric(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    """Return `first`, `first * factor`, `first * factor²`, … up to `last`."""
    numbers = [first]
    while numbers[-1] * factor <= last:
        numbers.append(numbers[-1] * factor)
    return tuple(numbers)


def doublings(last: int) -> tuple[int, ...]:
    """Return the powers of two up to `last`, and `last` itself."""
    numbers = geometric(1, last)
    if numbers[-1] < last:
        numbers += (last,)
    return numbers


def time_beside(trial: Trial, first: str, *works: Work) -> None:
    """Register the case of waiting for the first work while the other works go on beside it.

    `first` is the name of the case of the first work alone, which this cannot be faster than.
    Without a queue nothing is registered.
    """
    if trial.backend.engine == "async":

        def wait_for_first(launched: list[Any]) -> None:
            trial.backend.wait(launched[0])

        trial.time(BESIDE, *works, until=wait_for_first, parts=(first,), bare=())


def price_of_overlap(together: str) -> Metric:
    """Declare the metric of how much longer the first part of a case takes beside other work.

    `together` is the name of the case; `time_beside` registers the time beside other work.
    """

    def price(times: Times) -> Values:
        alone = times.parts(together)[0]
        return times[BESIDE] / alone - 1

    return Metric(
        "price_of_overlap",
        price,
        means="how much longer multiplications take while other work goes on: 0 is no longer than "
        "alone",
        limits=(-1.0, inf),
        in_percent=True,
    )


def chained(trial: Trial, x: Array, count: int = MULTIPLICATIONS) -> Work:
    """Make the work that multiplies by a matrix `count` times, each time the product before."""

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
    """Launch `count` additions of 1 to the same array, and return the last new array."""
    for _ in range(count):
        y = trial.backend.launch(trial.backend.ops.add, x, 1.0)
    return y


def increments(trial: Trial, x: Array, count: int, device: Device) -> Work:
    """Make the work that adds 1 to an array on a device `count` times."""
    add = trial.backend.ops.add

    def chain(length: int) -> Callable[[Array], Array]:
        # Each addition takes the sum before, so that no sum is kept and none can be left out.
        def increment(y: Array) -> Array:
            for _ in range(length):
                y = add(y, 1.0)
            return y

        return increment

    return _repeated(trial, incremented, chain, x, count, device)


def dense(ops: Ops, parameters: Array, x: Array) -> Array:
    """Compute x · weight + bias."""
    weight, bias = parameters
    return ops.add(ops.matmul(x, weight), bias)


def hidden(ops: Ops, parameters: Array, x: Array) -> Array:
    """Compute a dense layer with ReLU."""
    return ops.relu(dense(ops, parameters, x))


def pull_back(ops: Ops, fn: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function (parameters, upstream, *rest) -> gradients by the parameters of `fn`.

    `upstream` is the gradient by the result of fn(parameters, *rest). That result is computed
    again: nothing is kept from the forward pass.
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
    """Run a program and return its tasks, including the loading of its inputs.

    With `one_by_one` the recording waits for every task before the next one.
    """
    recording = Recording(backend, one_by_one)
    _kept_until_recorded = program.launch(recording)
    return recording.tasks


def units_of_step(
    backend: Backend,
    step: Callable[[Backend], object],
    times: int = 1,
    as_unit: Callable[[Callable[..., Array]], Callable[..., Array]] = lambda compute: compute,
) -> list[Work]:
    """Take a step once on a recording, and return each device's share of the step as one unit.

    The units are for a case that takes the step `times`. A unit repeats all launches of the step on
    a device, as one function with the same arguments. Copies and sums between devices are left out:
    they are exchange, and belong to the schedule.

    A unit returns the results of all launches, because a framework that compiles the unit leaves
    out results that nobody can see. It may merge what two launches have in common, unless `as_unit`
    is `ops.as_unit`. MXNet has no graph of gradients, and queues a unit's operators one by one.
    """
    launches_by_device: dict[Device, list[_Launched]] = {}

    def note(device: Device, fn: Callable[..., Array], args: tuple[Any, ...]) -> None:
        launches_by_device.setdefault(device, []).append(_Launched(fn, args))

    step(Recording(backend, on_launch=note))
    # Nothing that is timed later may wait for this step.
    backend.waitall()
    units = []
    for launches in launches_by_device.values():
        unit = as_unit(partial(_relaunch, launches))
        arrays: list[Array] = []
        for launched in launches:
            arrays += launched.arrays
        launch = partial(backend.launch, unit, *arrays)
        units.append(Work(launch, launch, times))
    return units


class _Launched(NamedTuple):
    """A function that a step launched, with its arguments."""

    fn: Callable[..., Array]
    args: tuple[Any, ...]

    @property
    def arrays(self) -> list[Array]:
        """The arguments that are not numbers."""
        return [x for x in self.args if not isinstance(x, Real)]


def _relaunch(launches: Sequence[_Launched], *arrays: Array) -> tuple[Array, ...]:
    """Call the launched functions again, with `arrays` in place of theirs; return the results."""
    remaining = iter(arrays)
    results = []
    for fn, args in launches:
        new_args = []
        for argument in args:
            is_number = isinstance(argument, Real)
            new_args.append(argument if is_number else next(remaining))
        results.append(fn(*new_args))
    return tuple(results)
