"""Copies of results to another device, and the choice of sizes with which they can hide.

Issuing should be a small part of copying, and copying should take as long as multiplying.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt

import numpy as np

from backends import HOST, Array, Device
from parallel_core.experiments import probing, workloads
from parallel_core.experiments.runner.parameters import Choice, Chosen
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.measurement.result import Note
from parallel_core.measurement.timing import Timing

FEWEST_MULTIPLICATIONS = 15
"""The fewest multiplications whose results are copied: nothing hides the first of them, nor the
last copy.
"""
COPYING_SECONDS = 0.3
"""About how many seconds a device multiplies at a chosen size if the results are copied."""
ISSUING_SECONDS = 31e-6
"""The seconds to issue a copy on the slowest framework (MXNet, between CPUs).

All frameworks count with them, so that all get the same work.
"""
ISSUING_SHARE, TOO_MUCH_ISSUING = 0.1, 0.5
"""The share of a copy's time that issuing should take, and the share from which on issuing, and not
copying, sets the pace.
"""
BEYOND_CACHES, MOST_BUFFERS = 2**27, 100
"""The bytes of all buffers, more than caches hold, and the most buffers."""
MOST_COPIES = 1000
"""The most copies of each result, and the most multiplications: their options take no more."""
PROBED_COPIES = 30
"""The copies of each of two results from which a size, and a number of copies, are chosen."""


def destination(trial: Trial) -> Device:
    """Return the device to which results of the first device are copied: a GPU copies to the host.

    Raises RequestError if a CPU has no second device.
    """
    if trial.devices[0].kind == "gpu":
        return HOST
    trial.refuse_single_device("overlap", "copies to another device")
    return trial.devices[1]


def copy_in_turn(
    trial: Trial, buffers: list[Array], index: int, result: Array, device: Device, copies: int
) -> None:
    """Launch `copies` of the result number `index` to the buffers on a device in turn.

    The copies replace the buffers. Each copy goes to another buffer than the copy before, past the
    caches. So every framework runs them in the order of the program: MXNet takes the task next that
    has been ready for longest, and of several copies to one buffer only one would be ready.
    """
    for number in range(index * copies, (index + 1) * copies):
        turn = number % len(buffers)
        buffers[turn] = trial.backend.copy_to(result, device, out=buffers[turn])


def buffers_for(trial: Trial, size: int, device: Device, count: int) -> list[Array]:
    """Load `count` buffers of zeros on a device: right values in them can only be copies."""
    zeros = np.zeros((size, size), dtype=np.float32)
    return [trial.backend.asarray(zeros, device) for _ in range(count)]


def buffers_in_turn(trial: Trial, size: int, device: Device) -> list[Array]:
    """Load enough buffers on a device that copies to them in turn go past the caches."""
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
    """Make the work that copies every result on `source` to the buffers on a device in turn.

    Each result is copied `copies` times. The copies replace the buffers.
    """
    work = _copies_of(trial, results, device, buffers, copies)
    element = workloads.ones(trial, source)
    element_buffers = [trial.backend.copy_to(element, device)]
    timed_calls = min(copies, workloads.MOST_CALLS)
    calls = _copies_of(trial, [element], device, element_buffers, timed_calls)
    calls = replace(calls, times=len(results) * copies / timed_calls)
    return replace(work, calls=calls)


def _copies_of(
    trial: Trial, results: Sequence[Array], device: Device, buffers: list[Array], copies: int
) -> Work:
    """Make the work of `copies` of each result, with a unit that copies to all buffers at once."""

    def one_by_one() -> None:
        for index, result in enumerate(results):
            copy_in_turn(trial, buffers, index, result, device, copies)

    def many_at_once() -> None:
        to_copy: list[Array] = []
        for result in results:
            to_copy += [result] * copies
        for start in range(0, len(to_copy), len(buffers)):
            sources = tuple(to_copy[start : start + len(buffers)])
            count = len(sources)
            copied = trial.backend.copy_to(sources, device, out=tuple(buffers[:count]))
            buffers[:count] = [copied[index] for index in range(count)]

    return Work(one_by_one, many_at_once, transfers=True)


def chosen_to_copy(
    destination: Callable[[Trial], Device], timings: float
) -> tuple[Chosen, Chosen, Chosen]:
    """Declare three options: the side of matrices, the multiplications, and copies of each result.

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
    """Choose the smallest size at which issuing a copy is a small part of the copy's time.

    The size is between two bounds: `MULTIPLICATIONS` of the smallest size fill the seconds that are
    allowed, and `FEWEST_MULTIPLICATIONS` of the largest one do. The smaller the matrices, the fewer
    copies take as long as a multiplication.
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
        allowed = min(max(smallest, wanted), largest)
        size = max(8, round(allowed / 8) * 8)
    # If even a single copy takes longer than a multiplication (a GPU behind a bus), larger matrices
    # shift the balance to computing.
    _, copying = _seconds_of_a_copy(trial, device, size, 1)
    share = workloads.seconds_of_one(trial, size, 1) / copying
    if share < 1:
        size, rule = round(size / share / 8) * 8, "equal-parts"
    largest_of_all = min(workloads.LARGEST_SIZE, probing.largest_size(trial))
    if size >= largest_of_all:
        return Choice(largest_of_all, "largest")
    return Choice(size, rule)


def _count_to_copy(timings: float, trial: Trial) -> Choice:
    """Choose how many multiplications of the chosen size fill the time.

    They are few enough to be in flight at once, and enough for copies to hide under them.
    """
    seconds = workloads.time_of(trial, COPYING_SECONDS, timings)
    of_one = workloads.seconds_of_one(trial, trial.parameters["size"], 1)
    filling = round(seconds.value / of_one)
    if filling >= workloads.MULTIPLICATIONS:
        return Choice(workloads.MULTIPLICATIONS, "launches")
    return Choice(max(FEWEST_MULTIPLICATIONS, filling), seconds.rule)


def copies_to_hide(trial: Trial, device: Device, size: int) -> Choice:
    """Choose how many copies of a result, at most `MOST_COPIES`, take as long as computing it."""
    computing = workloads.seconds_of_one(trial, size, 2)
    _, copying = _seconds_of_a_copy(trial, device, size)
    copies = max(1, round(computing / copying))
    if copies > MOST_COPIES:
        return Choice(MOST_COPIES, "largest")
    return Choice(copies, "equal-parts")


def _seconds_of_a_copy(
    trial: Trial, device: Device, size: int, copies: int = PROBED_COPIES
) -> Timing:
    """Measure the seconds to issue one copy, and those until it is done.

    Both are averages over `copies` of each of two results.
    """
    source = trial.devices[0]
    results = workloads.multiplied(trial, trial.normal(size, source), 2)
    buffers = buffers_in_turn(trial, size, device)
    copy = copies_of(trial, results, device, buffers, copies, source).launch
    copy()
    issued, done = probing.median_timing(trial, copy)
    count = copies * len(results)
    if trial.backend.engine == "sync":
        # Without a queue the copy is over when it is issued.
        return ISSUING_SECONDS, done / count
    return max(ISSUING_SECONDS, issued / count), done / count


def note_issuing(trial: Trial, copies: str) -> None:
    """Add a note if issuing the copies, and not copying, set the pace of a case."""
    case = trial.cases[copies]
    issuing_share = case.dispatch_median / case.median
    if trial.backend.engine == "async" and issuing_share > TOO_MUCH_ISSUING:
        sentence = (
            f"“{copies}” was bound by issuing: its time is that of Python, and not of the copies."
        )
        trial.notes.append(Note("bound-by-issuing", sentence))
