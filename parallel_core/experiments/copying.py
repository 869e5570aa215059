"""Copies of results to another device, and how much is multiplied and copied for the copies to hide.

Issuing is to be a small part of copying, and copying to take as long as multiplying.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt

import numpy as np

from backends import Array, Device
from parallel_core.experiments import works
from parallel_core.experiments.runner.parameters import Choice, Chosen
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.progress import tell
from parallel_core.measurement.timing import Timing

FEWEST_MULTIPLICATIONS = 15
"""If results are copied: nothing hides the first multiplication, nor the last copy."""
COPYING_SECONDS = 0.3
"""About how long a chosen size makes a device take for multiplications whose results are copied."""
ISSUING_SECONDS = 31e-6
"""Of a copy, on the framework that issues slowest (MXNet, between CPUs): all frameworks get the same work."""
ISSUING_SHARE, TOO_MUCH_ISSUING = 0.1, 0.5
"""The share of a copy's time that issuing it may take, and from which on that time is not the copy's own."""
PROBED_COPIES = 8
"""The copies of each result from which a size to copy is chosen."""
PROBED_RESULTS = 10
"""With their copies they are more than a core's share of the caches."""
CACHED_BYTES = 2**23
"""Results and buffers of this size stay in a cache while they are copied again."""


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
    one = works.one_element(trial, source)
    few = min(copies, works.MOST_CALLS)
    calls = of([one], [trial.backend.copy_to(one, device)], few)
    return replace(work, calls=replace(calls, times=len(results) * copies / few))


def chosen_to_copy(destination: Callable[[Trial], Device], timings: float) -> tuple[Chosen, Chosen, Chosen]:
    """Declare the side of matrices that are multiplied and copied to another device, how many, and copies of each.

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
    there, seconds = destination(trial), works.time_of(trial, COPYING_SECONDS, timings)
    size = smallest = works.size_for(trial, seconds.value, works.MULTIPLICATIONS)
    largest = smallest * (works.MULTIPLICATIONS / FEWEST_MULTIPLICATIONS) ** (1 / 3)
    rule = seconds.rule
    for _ in range(2):
        issuing, copying = _seconds_of_a_copy(trial, there, size, PROBED_COPIES)
        wanted = size * sqrt(issuing / ISSUING_SHARE / copying)
        rule = "issuing" if smallest < wanted < largest else seconds.rule
        size = max(8, round(min(max(smallest, wanted), largest) / 8) * 8)
    # Where even a single copy takes longer (a GPU behind a bus), larger matrices shift the balance to computing.
    once = works.seconds_of_one(trial, size, 1) / _seconds_of_a_copy(trial, there, size, 1)[1]
    if once < 1:
        size, rule = round(size / once / 8) * 8, "equal-parts"
    return Choice(size, rule) if size < works.LARGEST_SIZE else Choice(works.LARGEST_SIZE, "largest")


def _count_to_copy(timings: float, trial: Trial) -> Choice:
    """Choose how many multiplications of the size fill the time, within what is few enough and hides enough."""
    seconds = works.time_of(trial, COPYING_SECONDS, timings)
    filling = round(seconds.value / works.seconds_of_one(trial, trial.parameters["size"], 1))
    if filling >= works.MULTIPLICATIONS:
        return Choice(works.MULTIPLICATIONS, "launches")
    return Choice(max(FEWEST_MULTIPLICATIONS, filling), seconds.rule)


def copies_to_hide(trial: Trial, there: Device, size: int) -> Choice:
    """Choose so many copies of each result that copying takes about as long as computing."""
    # Many copies of one result are faster apiece than few, because it stays in a cache; of many results they are
    # slower, because these do not fit into it. So: estimate, then correct.
    seconds, copies = works.seconds_of_one(trial, size, 2), PROBED_COPIES
    for estimate, results in enumerate((2, 2, PROBED_RESULTS)):
        tell("choosing the copies", estimate / 3)
        copies = max(1, round(seconds / _seconds_of_a_copy(trial, there, size, copies, results)[1]))
    return Choice(copies, "equal-parts")


def _seconds_of_a_copy(trial: Trial, there: Device, size: int, copies: int, of: int = 2) -> Timing:
    """Measure the seconds of issuing a copy of a result, and of the copy, on so many copies of each of some results."""
    results = works.multiplied(trial, trial.normal(size, trial.devices[0]), of)
    buffers = [trial.backend.copy_to(result, there) for result in results]
    issued, done = works.median_timing(trial, copies_of(trial, results, there, buffers, copies).launch)
    count = copies * len(results)
    # Without a queue the copy is over when it is issued.
    return max(ISSUING_SECONDS, issued / count if trial.backend.engine == "async" else 0.0), done / count


def note_issuing(trial: Trial, copies: str) -> None:
    """Note that a case of copies was bound by issuing them, if it was."""
    case = trial.cases[copies]
    if trial.backend.engine == "async" and case.dispatch_median > TOO_MUCH_ISSUING * case.median:
        trial.notes.append(f"“{copies}” was bound by issuing: its time is that of Python, and not of the copies.")
