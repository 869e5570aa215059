"""Allreduce between processes: how fast does a framework's own engine sum, and how near is it to the network's speed?

Every rank runs this, and each must make the same exchanges in the same order, or all wait for ever. So every time that
is measured is sent to all ranks, and whatever depends on times is decided alike.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np

from backends import Array
from backends.host import clock_without_compiling
from backends.process_groups import Group, GroupedBackend, Rendezvous, barrier, broadcast, gather
from backends.process_groups.agreement import COMPARED_EXCHANGES
from parallel_core.errors import RequestError
from parallel_core.experiments.runner.declaration import BUDGET
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import native
from parallel_core.experiments.training_on_multiple_gpus.allreduce.checks import (
    ALL_SIZES,
    ITEM,
    error_of_sum,
    refuse_more_than_memory,
    whole_elements,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.figures import result_with
from parallel_core.experiments.training_on_multiple_gpus.allreduce.rank_to_rank import Stream, stream_between
from parallel_core.experiments.training_on_multiple_gpus.allreduce.sweep import about_budget, sweep
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import (
    NATIVE,
    ONE_STREAM,
    measure_each,
    time_repeated,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.verdicts import (
    about_link,
    between_changes,
    verdict_between,
)
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import Timing
from parallel_core.system.formatting import parse_sizes

__all__ = ["run_between_processes"]

TIMING, SECONDS = struct.Struct("!dd"), struct.Struct("!d")


def run_between_processes(
    backend: GroupedBackend,
    where: Rendezvous,
    algorithms: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
    rounds: int = 5,
    budget: float = BUDGET,
) -> Result:
    """Time the sum over all devices of all ranks, and beside it one TCP stream that carries each vector once, one way.

    All ranks call this alike, and return the same figures. A time is that of the slowest rank. `sizes` are in bytes of
    one device's vector, rounded down to whole elements. The n of busbw is the number of all ranks' devices. There are
    no bare times: a sum between processes is hardly anything but exchange.

    `share_of_stream_bound` is the stream's time for one vector over the sum's. How large it can be depends on the
    engine: in a ring of n ranks each sends 2(n − 1)/n vectors and receives as much at the same time, so it reaches
    n / (2(n − 1)) if both directions are as fast as one, which is 1 for two ranks; a parameter server receives n
    vectors and sends n, so it reaches 1/n if all ranks are on other hosts. Processes on one host share its cores
    and need not obey either.

    Raises RequestError for a single process, for other algorithms than `native`, which are written over the devices of
    one process, and for sizes for which the memory does not suffice.
    """
    if any(name != NATIVE for name in algorithms or ()):
        raise RequestError(f"between processes the sum is the framework's own: leave --algorithm out, or say {NATIVE}")
    group, count = backend.group, sum(backend.device_counts)
    if group.size < 2:
        raise RequestError("between processes there must be at least 2 of them (--processes 2)")
    whole = whole_elements(parse_sizes(ALL_SIZES) if sizes is None else sizes)
    own_host = group.hosts[group.rank]
    here = [devices for devices, host in zip(backend.device_counts, group.hosts, strict=True) if host == own_host]
    refuse_more_than_memory(whole[-1], sum(here))
    _warm_up(backend)
    small = [_error_between(backend, length) for length in sorted({1, 2, count - 1, count + 1, 1001})]
    end = clock_without_compiling() + budget

    def time_and_check(size: int, seconds: float) -> tuple[float, Mapping[str, Case]]:
        error = _error_between(backend, size // ITEM)
        return error, _time_size(backend, stream, size, rounds, seconds)

    def seconds_left() -> float:
        return _of_first(group, end - clock_without_compiling())

    with stream_between(group, where) as stream:
        errors, timed = sweep(whole, sizes is not None, time_and_check, seconds_left)

    hosts = len(set(group.hosts))
    described = {
        "explanation": verdict_between(timed, group.hosts, stream.other, group.transport),
        "answer": Answer((about_link(timed, count),), between_changes(timed, group.transport, hosts)),
        "notes": about_budget(whole, timed, budget),
    }
    return result_with(backend, timed, (*small, *errors), count, NATIVE, rounds, budget, {}, **described)


def _of_first(group: Group, seconds: float) -> float:
    """Give all ranks the first one's seconds."""
    return cast(float, SECONDS.unpack(broadcast(group, SECONDS.pack(seconds)))[0])


def _warm_up(backend: GroupedBackend) -> None:
    """Make the exchanges that the ranks compare with each other's before they make them: none of those is timed."""
    values: Sequence[Array] = [backend.asarray(np.zeros(1, dtype=np.float32), device) for device in backend.devices]
    for _ in range(COMPARED_EXCHANGES):
        values = native(backend, values)
    backend.waitall()


def _error_between(backend: GroupedBackend, length: int) -> float:
    """Sum uniform float32 vectors, drawn anew on each rank; return the largest relative error on any of their devices.

    The numbers are drawn by rank and device, so that every rank can draw the others' too.
    """
    rank = backend.group.rank
    loaded = [backend.asarray(_drawn(length, rank, place), device) for place, device in enumerate(backend.devices)]
    sums = [backend.to_numpy(total) for total in native(backend, loaded)]
    expected = np.zeros(length)
    for other, devices in enumerate(backend.device_counts):
        for place in range(devices):
            expected += _drawn(length, other, place)
    error = largest_of(error_of_sum(total, expected) for total in sums)
    return largest_of(one for one, _ in _gathered_pairs(backend.group, (error, 0.0)))


def _drawn(length: int, rank: int, place: int) -> np.ndarray:
    return np.random.default_rng([length, rank, place]).random(length, dtype=np.float32)


def _time_size(backend: GroupedBackend, stream: Stream, size: int, rounds: int, seconds: float) -> dict[str, Case]:
    """Time the sum and the stream in turns; return the cases by name. `size` is that of a vector, in bytes."""
    group = backend.group
    zeros = np.zeros(size // ITEM, dtype=np.float32)
    vectors = tuple(backend.asarray(zeros, device) for device in backend.devices)
    # Not zeros: pages that were never written to are all the same one, which stays in the cache.
    carried = memoryview(bytearray(b"\1") * size)

    def reduce() -> tuple[Array, ...]:
        nonlocal vectors
        vectors = native(backend, vectors)
        return vectors

    def carry(repeats: int) -> Timing:
        seconds = stream.carry(carried, repeats)
        return seconds, seconds

    ways: dict[str, Callable[[int], Timing]] = {
        ONE_STREAM: partial(_time_together, group, carry),
        NATIVE: partial(_time_together, group, partial(measure_each, backend, reduce)),
    }
    return time_repeated(backend, ways, size, rounds, seconds)


def _time_together(group: Group, take: Callable[[int], Timing], repeats: int) -> Timing:
    """Let all ranks begin at once; return the times of the slowest, the same on all of them."""
    barrier(group)
    timings = _gathered_pairs(group, take(repeats))
    return max(sent for sent, _ in timings), max(done for _, done in timings)


def _gathered_pairs(group: Group, numbers: Timing) -> list[Timing]:
    return [cast(Timing, TIMING.unpack(sent)) for sent in gather(group, TIMING.pack(*numbers))]
