"""Copies of results to another device, and how much is multiplied and copied for the copies to
hide.

Issuing is to be a small part of copying, and copying to take as long as multiplying.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt

import numpy as np

from backends import HOST, Array, Device
from parallel_core.experiments import workloads
from parallel_core.experiments.runner.parameters import Choice, Chosen
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.timing import Timing

FEWEST_MULTIPLICATIONS = 15
"""If results are copied: nothing hides the first multiplication, nor the last copy."""
COPYING_SECONDS = 0.3
"""About how long a chosen size makes a device take for multiplications whose results are copied."""
ISSUING_SECONDS = 31e-6
"""Of a copy, on the framework that issues slowest (MXNet, between CPUs): all frameworks get the
same work.
"""
ISSUING_SHARE, TOO_MUCH_ISSUING = 0.1, 0.5
"""The share of a copy's time that issuing it may take, and from which on that time is not the
copy's own.
"""
BEYOND_CACHES, MOST_BUFFERS = 2**27, 100
"""The bytes that no cache holds, and the buffers that are taken at most to have so many."""
MOST_COPIES = 1000
"""The copies of each result at the most, and the multiplications.

Their options take no more.
"""
PROBED_COPIES = 30
"""The copies of each of two results from which a size and how many copies are chosen."""


def destination(trial: Trial) -> Device:
    """Return the device to which the first one's results are copied.

    Raises RequestError if there is none.
    """
    if trial.devices[0].kind == "gpu":
        return HOST
    trial.refuse_single_device("overlap", "copies to another device")
    return trial.devices[1]


def copy_in_turn(
    trial: Trial, buffers: list[Array], index: int, result: Array, device: Device, copies: int
) -> None:
    """Launch copies of the result of an index to the buffers on a device in turn.

    The copies replace the buffers. MXNet's engine takes next what has been ready for longest, and
    of copies to one buffer only one is ready. In turn they run in the order of the program on every
    framework, past the caches whether they are alone or not.
    """
    for number in range(index * copies, (index + 1) * copies):
        turn = number % len(buffers)
        buffers[turn] = trial.backend.copy_to(result, device, out=buffers[turn])


def buffers_for(trial: Trial, size: int, device: Device, count: int) -> list[Array]:
    """Load buffers of zeros on a device, so that what is right in them was copied."""
    zeros = np.zeros((size, size), dtype=np.float32)
    return [trial.backend.asarray(zeros, device) for _ in range(count)]


def buffers_in_turn(trial: Trial, size: int, device: Device) -> list[Array]:
    """Load enough buffers on a device for copies to them in turn to go past the caches."""
    bytes_of_buffer = size * size * np.dtype(np.float32).itemsize
    count = max(1, min(MOST_BUFFERS, BEYOND_CACHES // bytes_of_buffer))
    return buffers_for(trial, size, device, count)


def copies_of(
    trial: Trial,
    results: Sequence[Array],
    device: Device,
    buffers: list[Array],
    copies: int,
    source: Device,
) -> Work:
    """Copy every result on `source` `copies` times to the buffers on a device in turn.

    The copies replace the buffers.
    """
    work = _copies_of(trial, results, device, buffers, copies)
    element = workloads.ones(trial, source)
    few = min(copies, workloads.MOST_CALLS)
    calls = _copies_of(trial, [element], device, [trial.backend.copy_to(element, device)], few)
    return replace(work, calls=replace(calls, times=len(results) * copies / few))


def _copies_of(
    trial: Trial, results: Sequence[Array], device: Device, buffers: list[Array], copies: int
) -> Work:
    def one_by_one() -> None:
        for index, result in enumerate(results):
            copy_in_turn(trial, buffers, index, result, device, copies)

    def many_at_once() -> None:
        repeated = [result for result in results for _ in range(copies)]
        for start in range(0, len(repeated), len(buffers)):
            sources = tuple(repeated[start : start + len(buffers)])
            count = len(sources)
            copied = trial.backend.copy_to(sources, device, out=tuple(buffers[:count]))
            buffers[:count] = [copied[turn] for turn in range(count)]

    return Work(one_by_one, many_at_once, transfers=True)


def chosen_to_copy(
    destination: Callable[[Trial], Device], timings: float
) -> tuple[Chosen, Chosen, Chosen]:
    """Declare three options: the side of matrices, how many there are, and copies of each result.

    A round takes `timings` times as long as the multiplications.
    """
    chosen = partial(Chosen, maximum=MOST_COPIES)
    about_copies = (
        "Copies of each result. Default: so many that copying takes as long as computing."
    )
    return (
        Chosen(
            "Side of the matrices. Default: chosen.",
            how=partial(_size_to_copy, destination, timings),
        ),
        chosen(
            "Multiplications on a device. Default: chosen, 25 at most.",
            how=partial(_count_to_copy, timings),
        ),
        chosen(
            about_copies,
            how=lambda trial: copies_to_hide(trial, destination(trial), trial.parameters["size"]),
        ),
    )


def _size_to_copy(destination: Callable[[Trial], Device], timings: float, trial: Trial) -> Choice:
    """Choose the smallest size at which issuing a copy is a small part of it.

    More multiplications may fit, not fewer. The smaller the matrices, the fewer copies take as long
    as a multiplication.
    """
    device = destination(trial)
    seconds = workloads.time_of(trial, COPYING_SECONDS, timings)
    size = smallest = workloads.size_for(trial, seconds.value, workloads.MULTIPLICATIONS)
    largest = smallest * (workloads.MULTIPLICATIONS / FEWEST_MULTIPLICATIONS) ** (1 / 3)
    rule = seconds.rule
    for _ in range(2):
        issuing, copying = _seconds_of_a_copy(trial, device, size)
        wanted = size * sqrt(issuing / ISSUING_SHARE / copying)
        rule = "issuing" if smallest < wanted < largest else seconds.rule
        size = max(8, round(min(max(smallest, wanted), largest) / 8) * 8)
    # Where even a single copy takes longer (a GPU behind a bus), larger matrices shift the balance
    # to computing.
    _, copying = _seconds_of_a_copy(trial, device, size, 1)
    share = workloads.seconds_of_one(trial, size, 1) / copying
    if share < 1:
        size, rule = round(size / share / 8) * 8, "equal-parts"
    if size >= workloads.LARGEST_SIZE:
        return Choice(workloads.LARGEST_SIZE, "largest")
    return Choice(size, rule)


def _count_to_copy(timings: float, trial: Trial) -> Choice:
    """Choose how many multiplications of the size fill the time.

    They are few enough to be in flight, and enough to hide something.
    """
    seconds = workloads.time_of(trial, COPYING_SECONDS, timings)
    filling = round(seconds.value / workloads.seconds_of_one(trial, trial.parameters["size"], 1))
    if filling >= workloads.MULTIPLICATIONS:
        return Choice(workloads.MULTIPLICATIONS, "launches")
    return Choice(max(FEWEST_MULTIPLICATIONS, filling), seconds.rule)


def copies_to_hide(trial: Trial, device: Device, size: int) -> Choice:
    """Choose the copies of each result with which copying takes about as long as computing.

    They are no more than there may be.
    """
    computing = workloads.seconds_of_one(trial, size, 2)
    _, copying = _seconds_of_a_copy(trial, device, size)
    copies = max(1, round(computing / copying))
    if copies > MOST_COPIES:
        return Choice(MOST_COPIES, "largest")
    return Choice(copies, "equal-parts")


def _seconds_of_a_copy(
    trial: Trial, device: Device, size: int, copies: int = PROBED_COPIES
) -> Timing:
    """Measure the seconds of issuing a copy of a result, and of the copy.

    They are taken from `copies` of each of two results.
    """
    source = trial.devices[0]
    results = workloads.multiplied(trial, trial.normal(size, source), 2)
    buffers = buffers_in_turn(trial, size, device)
    copy = copies_of(trial, results, device, buffers, copies, source).launch
    copy()
    issued, done = workloads.median_timing(trial, copy)
    count = copies * len(results)
    if trial.backend.engine == "sync":
        # Without a queue the copy is over when it is issued.
        return ISSUING_SECONDS, done / count
    return max(ISSUING_SECONDS, issued / count), done / count


def note_issuing(trial: Trial, copies: str) -> None:
    """Note that a case of copies was bound by issuing them, if it was."""
    case = trial.cases[copies]
    if trial.backend.engine == "async" and case.dispatch_median > TOO_MUCH_ISSUING * case.median:
        trial.notes.append(
            f"“{copies}” was bound by issuing: its time is that of Python, and not of the copies."
        )
