"""What experiments launch: matrix multiplications, copies and increments, each also as one unit."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean, median

from backends import Array, Device
from parallel_core.experiments.runner.parameters import Chosen
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.progress import tell
from parallel_core.measurement.timing import measure

__all__ = [
    "FEWEST_TIMINGS",
    "MULTIPLICATIONS",
    "chained",
    "chosen_to_copy",
    "copies_of",
    "copy_into",
    "in_units",
    "incremented",
    "increments",
    "largest_size",
    "multiplications",
    "multiplied",
    "seconds_of_one",
    "size_for",
    "size_for_run",
]

MULTIPLICATIONS = 50
RUN_SECONDS = 0.2
"""About how long a chosen size makes a device take for them."""
MOST_IN_UNIT = 500
"""Operations in one unit at the most: a framework may take milliseconds for each to make a unit of them."""
PROBED_SIZE, PROBED, PROBES = 256, 5, 8
"""The size, the multiplications and the tries from which a size is chosen."""
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


def multiplications(trial: Trial, x: Array, count: int = MULTIPLICATIONS) -> Work:
    """Multiply a matrix with itself so many times, the multiplications independent: the book's `run`."""
    matmul = trial.backend.ops.matmul

    def some(length: int) -> Callable[[Array], Array]:
        return lambda matrix: tuple(matmul(matrix, matrix) for _ in range(length))

    one = one_element(trial, x)
    calls = Work(partial(multiplied, trial, one, count), in_units(trial, one, count, some))
    return Work(partial(multiplied, trial, x, count), in_units(trial, x, count, some), calls=calls)


def one_element(trial: Trial, x: Array) -> Array:
    """Make a matrix of one element on a matrix's device: what its operations cost there is overhead."""
    ops = trial.backend.ops

    def corner(x: Array) -> Array:
        return ops.flatten(ops.split(ops.total(x, 0), tuple(filter(None, (1, x.shape[1] - 1))))[0])

    return trial.backend.launch(corner, x)


def in_units(
    trial: Trial, x: Array, count: int, some: Callable[[int], Callable[[Array], Array]]
) -> Callable[[], list[Array]]:
    """Return what launches `count` operations on a value with nothing queued between them, many as several units."""
    lengths = [min(MOST_IN_UNIT, count - first) for first in range(0, count, MOST_IN_UNIT)]
    units = {length: trial.backend.ops.as_unit(some(length)) for length in set(lengths)}
    return lambda: [trial.backend.launch(units[length], x) for length in lengths]


def copy_into(trial: Trial, buffer: Array, result: Array, device: Device, copies: int) -> Array:
    """Launch copies of a result to a buffer on the device; return the buffer as it will then be."""
    for _ in range(copies):
        buffer = trial.backend.copy_to(result, device, out=buffer)
    return buffer


def copies_of(trial: Trial, results: Sequence[Array], device: Device, buffers: list[Array], copies: int) -> Work:
    """Copy every result so many times into its buffer on the device; the buffers are replaced by the copies."""

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

    one = one_element(trial, results[0])
    few = min(copies, MOST_CALLS)
    calls = of([one], [trial.backend.copy_to(one, device)], few)
    return replace(of(results, buffers, copies), calls=replace(calls, times=len(results) * copies / few))


def seconds_of_one(trial: Trial, size: int, count: int = PROBED) -> float:
    """Measure the seconds of one multiplication on the first device, the median of a few tries of so many.

    Not the fastest: what is chosen by it must fit into a budget on a busy machine too.
    """
    x = trial.normal(size, trial.devices[0])
    trial.backend.wait(trial.backend.launch(trial.backend.ops.matmul, x, x))
    return median(measure(trial.backend, partial(multiplied, trial, x, count))[1] for _ in range(PROBES)) / count


def size_for(trial: Trial, seconds: float, count: int) -> int:
    """Choose the size, a multiple of 8, at which `count` multiplications take about so many seconds on a device."""
    size = 128
    # The time grows with the cube of the size, roughly; the second and third estimates correct the first.
    for estimate in range(3):
        tell("choosing a size", estimate / 3)
        taken = count * seconds_of_one(trial, size)
        size = max(8, round(size * (seconds / taken) ** (1 / 3) / 8) * 8)
    return size


def size_for_run(trial: Trial, share: float = 1.0) -> int:
    """Choose the size with which the first device takes about 0.2 s, or a share of that, for all multiplications."""
    return size_for(trial, share * RUN_SECONDS, MULTIPLICATIONS)


def largest_size(trial: Trial, seconds: float, wanted: int) -> int:
    """Return the size that is wanted, or the largest multiple of 8 below whose multiplication takes no longer."""
    tell("choosing a size", 0.0)
    launch = partial(multiplied, trial, trial.normal(PROBED_SIZE, trial.devices[0]), PROBED)
    # The mean and not the fastest: on a busy machine a budget must last for all. Larger multiplications use a device
    # better than these, so they take rather less than is foreseen.
    _, *timings = (measure(trial.backend, launch) for _ in range(1 + PROBES))
    foreseen = mean(done for _, done in timings) / PROBED / PROBED_SIZE**3
    largest = int((max(0.0, seconds) / foreseen) ** (1 / 3))
    return wanted if wanted <= largest else max(8, largest // 8 * 8)


def chosen_to_copy(destination: Callable[[Trial], Device]) -> tuple[Chosen, Chosen]:
    """Declare the size of matrices that are multiplied and copied to another device, and the copies of each result."""
    more = "Copies of each result. Default: so many that copying takes as long as computing."
    return (
        Chosen("Side of the matrices. Default: chosen.", how=partial(_size_to_copy, destination)),
        Chosen(more, maximum=1000, how=partial(_copies_to_hide, destination)),
    )


def _size_to_copy(destination: Callable[[Trial], Device], trial: Trial) -> int:
    """Choose the size with which computing takes about 0.2 s, and no less than copying each result once."""
    there = destination(trial)
    size = min(LARGEST_SIZE, size_for(trial, RUN_SECONDS, MULTIPLICATIONS))
    # Where even a single copy takes longer (a GPU behind a bus), larger matrices shift the balance to computing.
    once = _run_over_copies(trial, there, size, 1)
    return size if once >= 1 else min(LARGEST_SIZE, round(size / once / 8) * 8)


def _copies_to_hide(destination: Callable[[Trial], Device], trial: Trial) -> int:
    """Choose so many copies of each result that copying takes about as long as computing."""
    # Many copies of one result are faster apiece than few, because it stays in the cache: estimate, then correct.
    there, size, copies = destination(trial), trial.parameters["size"], 8
    for estimate in range(2):
        tell("choosing the copies", estimate / 2)
        copies = max(1, round(copies * _run_over_copies(trial, there, size, copies)))
    return copies


def _run_over_copies(trial: Trial, destination: Device, size: int, copies: int) -> float:
    """Measure how many times longer the multiplications take than the copies, on a tenth of them."""
    probe = Trial(trial.backend, {}, rounds=3, budget=trial.left(0.2) / 3)
    x = probe.normal(size, trial.devices[0])
    run = multiplications(probe, x, MULTIPLICATIONS // 10)
    results = run.launch()
    buffers = [trial.backend.copy_to(result, destination) for result in results]
    probe.time("run", run, bare=())
    probe.time("copy", copies_of(probe, results, destination, buffers, copies), bare=())
    cases = probe.run(1.0)
    return cases["run"].median / cases["copy"].median


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


def increments(trial: Trial, x: Array, count: int) -> Work:
    """Add 1 to an array so many times."""
    add = trial.backend.ops.add

    def chain(length: int) -> Callable[[Array], Array]:
        # Each increments the one before, so that none has to be kept and none can be left out.
        def increment(y: Array) -> Array:
            for _ in range(length):
                y = add(y, 1.0)
            return y

        return increment

    one, few = one_element(trial, x), min(count, MOST_CALLS)
    calls = Work(partial(incremented, trial, one, few), in_units(trial, one, few, chain), times=count / few)
    return Work(partial(incremented, trial, x, count), in_units(trial, x, count, chain), calls=calls)
