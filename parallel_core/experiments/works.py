"""What experiments launch: matrix multiplications, copies, increments and layers; and how much of it.

A run's work is chosen by one rule: three rounds fit the budget, issuing is a small part, few launches are in flight,
and parts that are to hide each other take equally long.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, sqrt
from statistics import median

import numpy as np

from backends import Array, Device, Ops
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.parameters import Choice, Chosen
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.progress import tell
from parallel_core.measurement.timing import Timing, measure

MULTIPLICATIONS = 25
"""On a device at the most: engines bound what may be in flight, JAX to 32."""
FEWEST_MULTIPLICATIONS = 15
"""If results are copied: nothing hides the first multiplication, nor the last copy."""
RUN_SECONDS, COPYING_SECONDS = 0.2, 0.3
"""About how long a chosen size makes a device take for them, and if results are copied."""
ISSUING_SECONDS = 31e-6
"""Of a copy, on the framework that issues slowest (MXNet, between CPUs): all frameworks get the same work."""
ISSUING_SHARE, TOO_MUCH_ISSUING = 0.1, 0.5
"""The share of a copy's time that issuing it may take, and from which on that time is not the copy's own."""
ROUNDS_SHARE = 0.6
"""The share of the budget into which the fewest rounds fit: choosing and checking take time too, and rounds vary."""
MOST_IN_UNIT = 500
"""Operations in one unit at the most: a framework may take milliseconds for each to make a unit of them."""
PROBED_SIZE, PROBED, PROBES = 256, 5, 8
"""The size, the multiplications and the tries from which a size is chosen."""
FEW_PROBES, PROBED_COPIES = 3, 8
"""The tries where they take long, and the copies of each result from which a size to copy is chosen."""
PROBED_RESULTS = 10
"""With their copies they are more than a core's share of the caches."""
BESIDE = "multiplications beside the rest"
LARGEST_SIZE = 8192
MOST_CALLS = 1000
"""So many calls on one element tell what one costs."""
CACHED_BYTES = 2**23
"""Results and buffers of this size stay in a cache while they are copied again."""
FEWEST_TIMINGS = 1 + FEWEST_FOR_A_VERDICT
"""How often everything is timed at the least for a verdict: a warm-up, and the fewest rounds."""


def multiplied(trial: Trial, x: Array, count: int = 1) -> list[Array]:
    """Launch independent multiplications of a matrix with itself, on its device."""
    return [trial.backend.launch(trial.backend.ops.matmul, x, x) for _ in range(count)]


def multiplications(trial: Trial, x: Array, count: int = MULTIPLICATIONS, device: Device | None = None) -> Work:
    """Multiply a matrix with itself so many times, the multiplications independent: the book's `run`.

    What their calls take by themselves is timed on the device, if it is given.
    """
    matmul = trial.backend.ops.matmul

    def some(length: int) -> Callable[[Array], Array]:
        return lambda matrix: tuple(matmul(matrix, matrix) for _ in range(length))

    return _repeated(trial, multiplied, some, x, count, device)


def one_element(trial: Trial, device: Device) -> Array:
    """Load a matrix of one element: what an operation takes on it is overhead."""
    return trial.backend.asarray(np.ones((1, 1), dtype=np.float32), device)


def _repeated(
    trial: Trial,
    launched: Callable[[Trial, Array, int], object],
    some: Callable[[int], Callable[[Array], Array]],
    x: Array,
    count: int,
    device: Device | None,
) -> Work:
    """Launch `count` operations on a value, and as units of `some`; with a device, their calls on one element too."""

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
    return replace(of(x, count), calls=replace(of(one_element(trial, device), few), times=count / few))


def copy_into(trial: Trial, buffer: Array, result: Array, device: Device, copies: int) -> Array:
    """Launch copies of a result to a buffer on the device; return the buffer as it will then be."""
    for _ in range(copies):
        buffer = trial.backend.copy_to(result, device, out=buffer)
    return buffer


def buffers_for(trial: Trial, size: int, device: Device, count: int) -> list[Array]:
    """Load buffers of zeros on a device: those that are timed hold the right values before any timed copy."""
    zeros = np.zeros((size, size), dtype=np.float32)
    return [trial.backend.asarray(zeros, device) for _ in range(count)]


def copies_of(
    trial: Trial,
    results: Sequence[Array],
    device: Device,
    buffers: list[Array],
    copies: int,
    source: Device | None = None,
) -> Work:
    """Copy every result so many times into its buffer on the device; the buffers are replaced by the copies.

    What their calls take by themselves is timed if the results' device is given as `source`.
    """

    def of(results: Sequence[Array], buffers: list[Array], copies: int) -> Work:
        def one_by_one() -> None:
            for index, result in enumerate(results):
                buffers[index] = copy_into(trial, buffers[index], result, device, copies)

        def many_at_once() -> None:
            # As many results together as caches hold, with little queued between them.
            bytes_of_one = trial.backend.to_numpy(results[0]).nbytes
            together = max(1, CACHED_BYTES // (2 * bytes_of_one))
            for first in range(0, len(results), together):
                own = slice(first, first + together)
                copied = copy_into(trial, tuple(buffers[own]), tuple(results[own]), device, copies)
                buffers[own] = [copied[index] for index in range(len(results[own]))]

        return Work(one_by_one, many_at_once, transfers=True)

    work = of(results, buffers, copies)
    if source is None:
        return work
    one = one_element(trial, source)
    few = min(copies, MOST_CALLS)
    calls = of([one], [trial.backend.copy_to(one, device)], few)
    return replace(work, calls=replace(calls, times=len(results) * copies / few))


def seconds_of_one(trial: Trial, size: int, count: int = PROBED) -> float:
    """Measure the seconds of one multiplication on the first device, the median of a few tries of so many.

    Not the fastest: what is chosen by it must fit into a budget on a busy machine too.
    """
    x = trial.normal(size, trial.devices[0])
    return _median_timing(trial, partial(multiplied, trial, x, count))[1] / count


def _median_timing(trial: Trial, launch: Callable[[], object]) -> Timing:
    """Return the medians of a few timings of a launch, after a warm-up."""
    measure(trial.backend, launch)
    timings = [measure(trial.backend, launch) for _ in range(FEW_PROBES)]
    if sum(done for _, done in timings) < RUN_SECONDS / 2:
        timings += [measure(trial.backend, launch) for _ in range(PROBES - FEW_PROBES)]
    issued, done = (median(seconds) for seconds in zip(*timings, strict=True))
    return issued, done


def size_for(trial: Trial, seconds: float, count: int) -> int:
    """Choose the size, a multiple of 8, at which `count` multiplications take about so many seconds on a device."""
    size = 128
    # The time grows with the cube of the size, roughly; the second and third estimates correct the first.
    for estimate in range(3):
        tell("choosing a size", estimate / 3)
        taken = count * seconds_of_one(trial, size)
        size = max(8, round(size * (seconds / taken) ** (1 / 3) / 8) * 8)
    return size


def _time_of(trial: Trial, usual: float, timings: float) -> Choice:
    """Choose the seconds of one of so many timings of a round: the usual ones, or less for three rounds to fit."""
    allowed = ROUNDS_SHARE * trial.budget / FEWEST_TIMINGS / timings
    return Choice(usual, "time") if usual <= allowed else Choice(allowed, "budget")


def size_for_run(trial: Trial, timings: float, share: float = 1.0) -> Choice:
    """Choose the size with which the first device takes about 0.2 s, or a share of that, for all multiplications.

    They take less if the fewest rounds of so many such timings would not fit the budget.
    """
    seconds = _time_of(trial, share * RUN_SECONDS, timings)
    return Choice(size_for(trial, seconds.value, MULTIPLICATIONS), seconds.rule)


def size_up_to(trial: Trial, seconds: float, wanted: int) -> Choice:
    """Choose the size that is wanted, or the largest multiple of 8 below whose multiplication takes no longer."""
    tell("choosing a size", 0.0)
    # Larger multiplications use a device better than these, so they take rather less than is foreseen.
    foreseen = seconds_of_one(trial, PROBED_SIZE) / PROBED_SIZE**3
    largest = int((max(0.0, seconds) / foreseen) ** (1 / 3))
    return Choice(wanted, "largest") if wanted <= largest else Choice(max(8, largest // 8 * 8), "budget")


def chosen_to_copy(destination: Callable[[Trial], Device], timings: float) -> tuple[Chosen, Chosen, Chosen]:
    """Declare the size of matrices that are multiplied and copied to another device, how many, and copies of each.

    A round takes so many times as long as the multiplications.
    """
    chosen = partial(Chosen, maximum=1000)
    more = "Copies of each result. Default: so many that copying takes as long as computing."
    return (
        Chosen("Side of the matrices. Default: chosen.", how=partial(_size_to_copy, destination, timings)),
        chosen("Multiplications on a device. Default: chosen, 25 at most.", how=partial(_count_to_copy, timings)),
        chosen(more, how=lambda trial: copies_to_hide(trial, destination(trial), trial.parameters["size"])),
    )


def _size_to_copy(destination: Callable[[Trial], Device], timings: float, trial: Trial) -> Choice:
    """Choose the smallest size at which issuing a copy is a small part of it; more multiplications may fit, not fewer.

    The smaller the matrices, the fewer copies take as long as a multiplication.
    """
    there, seconds = destination(trial), _time_of(trial, COPYING_SECONDS, timings)
    size = smallest = size_for(trial, seconds.value, MULTIPLICATIONS)
    largest = smallest * (MULTIPLICATIONS / FEWEST_MULTIPLICATIONS) ** (1 / 3)
    rule = seconds.rule
    for _ in range(2):
        issuing, copying = _seconds_of_a_copy(trial, there, size, PROBED_COPIES)
        wanted = size * sqrt(issuing / ISSUING_SHARE / copying)
        rule = "issuing" if smallest < wanted < largest else seconds.rule
        size = max(8, round(min(max(smallest, wanted), largest) / 8) * 8)
    # Where even a single copy takes longer (a GPU behind a bus), larger matrices shift the balance to computing.
    once = seconds_of_one(trial, size, 1) / _seconds_of_a_copy(trial, there, size, 1)[1]
    if once < 1:
        size, rule = round(size / once / 8) * 8, "equal-parts"
    return Choice(size, rule) if size < LARGEST_SIZE else Choice(LARGEST_SIZE, "largest")


def _count_to_copy(timings: float, trial: Trial) -> Choice:
    """Choose how many multiplications of the size fill the time, within what is few enough and hides enough."""
    seconds = _time_of(trial, COPYING_SECONDS, timings)
    filling = round(seconds.value / seconds_of_one(trial, trial.parameters["size"], 1))
    if filling >= MULTIPLICATIONS:
        return Choice(MULTIPLICATIONS, "launches")
    return Choice(max(FEWEST_MULTIPLICATIONS, filling), seconds.rule)


def copies_to_hide(trial: Trial, there: Device, size: int) -> Choice:
    """Choose so many copies of each result that copying takes about as long as computing."""
    # Many copies of one result are faster apiece than few, because it stays in a cache; of many results they are
    # slower, because these do not fit into it. So: estimate, then correct.
    seconds, copies = seconds_of_one(trial, size, 2), PROBED_COPIES
    for estimate, results in enumerate((2, 2, PROBED_RESULTS)):
        tell("choosing the copies", estimate / 3)
        copies = max(1, round(seconds / _seconds_of_a_copy(trial, there, size, copies, results)[1]))
    return Choice(copies, "equal-parts")


def _seconds_of_a_copy(trial: Trial, there: Device, size: int, copies: int, of: int = 2) -> Timing:
    """Measure the seconds of issuing a copy of a result, and of the copy, on so many copies of each of some results."""
    results = multiplied(trial, trial.normal(size, trial.devices[0]), of)
    buffers = [trial.backend.copy_to(result, there) for result in results]
    issued, done = _median_timing(trial, copies_of(trial, results, there, buffers, copies).launch)
    count = copies * len(results)
    # Without a queue the copy is over when it is issued.
    return max(ISSUING_SECONDS, issued / count if trial.backend.engine == "async" else 0.0), done / count


def note_issuing(trial: Trial, copies: str) -> None:
    """Note that a case of copies was bound by issuing them, if it was."""
    case = trial.cases[copies]
    if trial.backend.engine == "async" and case.dispatch_median > TOO_MUCH_ISSUING * case.median:
        trial.notes.append(f"“{copies}” was bound by issuing: its time is that of Python, and not of the copies.")


def time_beside(trial: Trial, *works: Work) -> None:
    """Register how long the results of the first of some works take while the rest goes on; that needs a queue."""
    if trial.backend.engine == "async":
        trial.time(BESIDE, *works, until=lambda launched: [*map(trial.backend.wait, launched[0])], bare=())


def price_of_overlap(together: str) -> Metric:
    """Declare how much longer what was registered by `time_beside` takes than the first part of a case."""
    return Metric(
        "price_of_overlap",
        lambda times: times[BESIDE] / times.parts(together)[0] - 1,
        means="how much longer multiplications take while other work goes on: 0 is no longer than alone",
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
    """Launch so many additions of 1 to an array; each makes a new one, of which the last is returned."""
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
    """Make the function (parameters, upstream, *rest) -> the gradients by the parameters of fn(parameters, *rest).

    `upstream` is the gradient by the function's result, which is computed again: nothing is kept from the forward pass.
    """
    differentiate = ops.value_and_grad(
        lambda parameters, upstream, *rest: ops.total(ops.multiply(fn(parameters, *rest), upstream))
    )
    return lambda *args: differentiate(*args)[1]
