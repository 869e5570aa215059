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
from parallel_core.experiments import works
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
"""Bytes that no cache holds, and how many buffers are taken at most to have so many."""
MOST_COPIES = 1000
"""Of each result at the most, and as many multiplications: what their options take."""
PROBED_COPIES = 30
"""The copies of each of two results from which a size and how many copies are chosen."""


def destination(trial: Trial) -> Device:
    """Return where the results of the first device are copied to; raises RequestError if there is
    no such device.
    """
    if trial.devices[0].kind == "gpu":
        return HOST
    trial.refuse_single_device("overlap", "copies to another device")
    return trial.devices[1]


def copy_in_turn(
    trial: Trial, buffers: list[Array], index: int, result: Array, device: Device, copies: int
) -> None:
    """Launch copies of the result of this index to the buffers on a device in turn, and replace
    these by the copies.

    MXNet's engine takes next what has been ready for longest, and of copies to one buffer only one
    is ready. In turn they run in the order of the program on every framework, past the caches
    whether they are alone or not.
    """
    for number in range(index * copies, (index + 1) * copies):
        turn = number % len(buffers)
        buffers[turn] = trial.backend.copy_to(result, device, out=buffers[turn])


def buffers_for(trial: Trial, size: int, device: Device, count: int) -> list[Array]:
    """Load buffers of zeros on a device, so that what is right in them was copied."""
    zeros = np.zeros((size, size), dtype=np.float32)
    return [trial.backend.asarray(zeros, device) for _ in range(count)]


def buffers_in_turn(trial: Trial, size: int, device: Device) -> list[Array]:
    """Load so many buffers on a device that copies to them in turn go past the caches."""
    bytes_of_one = size * size * np.dtype(np.float32).itemsize
    return buffers_for(
        trial, size, device, max(1, min(MOST_BUFFERS, BEYOND_CACHES // bytes_of_one))
    )


def copies_of(
    trial: Trial,
    results: Sequence[Array],
    device: Device,
    buffers: list[Array],
    copies: int,
    source: Device,
) -> Work:
    """Copy every result on `source` so many times to the buffers on a device in turn; the copies
    replace these.
    """

    def of(results: Sequence[Array], buffers: list[Array], copies: int) -> Work:
        def one_by_one() -> None:
            for index, result in enumerate(results):
                copy_in_turn(trial, buffers, index, result, device, copies)

        def many_at_once() -> None:
            each = [result for result in results for _ in range(copies)]
            for first in range(0, len(each), len(buffers)):
                own = tuple(each[first : first + len(buffers)])
                copied = trial.backend.copy_to(own, device, out=tuple(buffers[: len(own)]))
                buffers[: len(own)] = [copied[turn] for turn in range(len(own))]

        return Work(one_by_one, many_at_once, transfers=True)

    one = works.ones(trial, source)
    few = min(copies, works.MOST_CALLS)
    calls = of([one], [trial.backend.copy_to(one, device)], few)
    return replace(
        of(results, buffers, copies), calls=replace(calls, times=len(results) * copies / few)
    )


def chosen_to_copy(
    destination: Callable[[Trial], Device], timings: float
) -> tuple[Chosen, Chosen, Chosen]:
    """Declare the side of matrices that are multiplied and copied to another device, how many, and
    copies of each.

    A round takes so many times as long as the multiplications.
    """
    chosen = partial(Chosen, maximum=MOST_COPIES)
    more = "Copies of each result. Default: so many that copying takes as long as computing."
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
            more,
            how=lambda trial: copies_to_hide(trial, destination(trial), trial.parameters["size"]),
        ),
    )


def _size_to_copy(destination: Callable[[Trial], Device], timings: float, trial: Trial) -> Choice:
    """Choose the smallest size at which issuing a copy is a small part of it; more multiplications
    may fit, not fewer.

    The smaller the matrices, the fewer copies take as long as a multiplication.
    """
    there, seconds = destination(trial), works.time_of(trial, COPYING_SECONDS, timings)
    size = smallest = works.size_for(trial, seconds.value, works.MULTIPLICATIONS)
    largest = smallest * (works.MULTIPLICATIONS / FEWEST_MULTIPLICATIONS) ** (1 / 3)
    rule = seconds.rule
    for _ in range(2):
        issuing, copying = _seconds_of_a_copy(trial, there, size)
        wanted = size * sqrt(issuing / ISSUING_SHARE / copying)
        rule = "issuing" if smallest < wanted < largest else seconds.rule
        size = max(8, round(min(max(smallest, wanted), largest) / 8) * 8)
    # Where even a single copy takes longer (a GPU behind a bus), larger matrices shift the balance
    # to computing.
    once = works.seconds_of_one(trial, size, 1) / _seconds_of_a_copy(trial, there, size, 1)[1]
    if once < 1:
        size, rule = round(size / once / 8) * 8, "equal-parts"
    return (
        Choice(size, rule) if size < works.LARGEST_SIZE else Choice(works.LARGEST_SIZE, "largest")
    )


def _count_to_copy(timings: float, trial: Trial) -> Choice:
    """Choose how many multiplications of the size fill the time, within what is few enough and
    hides enough.
    """
    seconds = works.time_of(trial, COPYING_SECONDS, timings)
    filling = round(seconds.value / works.seconds_of_one(trial, trial.parameters["size"], 1))
    if filling >= works.MULTIPLICATIONS:
        return Choice(works.MULTIPLICATIONS, "launches")
    return Choice(max(FEWEST_MULTIPLICATIONS, filling), seconds.rule)


def copies_to_hide(trial: Trial, there: Device, size: int) -> Choice:
    """Choose so many copies of each result that copying takes about as long as computing, or the
    most there may be.
    """
    copies = max(
        1, round(works.seconds_of_one(trial, size, 2) / _seconds_of_a_copy(trial, there, size)[1])
    )
    return (
        Choice(copies, "equal-parts") if copies <= MOST_COPIES else Choice(MOST_COPIES, "largest")
    )


def _seconds_of_a_copy(
    trial: Trial, there: Device, size: int, copies: int = PROBED_COPIES
) -> Timing:
    """Measure the seconds of issuing a copy of a result, and of the copy, on so many copies of each
    of two results.
    """
    first = trial.devices[0]
    results = works.multiplied(trial, trial.normal(size, first), 2)
    buffers = buffers_in_turn(trial, size, there)
    copy = copies_of(trial, results, there, buffers, copies, first).launch
    copy()
    issued, done = works.median_timing(trial, copy)
    count = copies * len(results)
    # Without a queue the copy is over when it is issued.
    return max(
        ISSUING_SECONDS, issued / count if trial.backend.engine == "async" else 0.0
    ), done / count


def note_issuing(trial: Trial, copies: str) -> None:
    """Note that a case of copies was bound by issuing them, if it was."""
    case = trial.cases[copies]
    if trial.backend.engine == "async" and case.dispatch_median > TOO_MUCH_ISSUING * case.median:
        trial.notes.append(
            f"“{copies}” was bound by issuing: its time is that of Python, and not of the copies."
        )
