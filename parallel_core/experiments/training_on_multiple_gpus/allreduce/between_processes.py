"""Allreduce between processes: how fast does a framework's own engine sum, and how near is it to the network's speed?

Every rank runs this, and each must make the same exchanges in the same order, or all wait for ever. So every time that
is measured is sent to all ranks, and whatever depends on times is decided alike.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np

from backends.process_groups import Group, GroupedBackend, Rendezvous, barrier, broadcast, gather
from backends.process_groups.agreement import COMPARED_EXCHANGES
from parallel_core.errors import RequestError
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import native
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidth import ONE_STREAM, find_bandwidths
from parallel_core.experiments.training_on_multiple_gpus.allreduce.checks import ITEM, error_of_sum, sizes_to_time
from parallel_core.experiments.training_on_multiple_gpus.allreduce.rank_to_rank import Stream, stream_between
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import (
    measure_each,
    summing,
    swept_sizes,
    time_repeated,
)
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.timing import Timing

__all__ = ["program"]

TIMING, SECONDS = struct.Struct("!dd"), struct.Struct("!d")
NATIVE = "native"


def program(
    trial: Trial, where: Rendezvous, algorithms: Sequence[str] | None = None, sizes: Sequence[int] | None = None
) -> None:
    """Time the sum over all devices of all ranks, and beside it one TCP stream that carries each vector once, one way.

    All ranks call this alike, and find the same figures. A time is that of the slowest rank. `sizes` are in bytes of
    one device's vector, rounded down to whole elements. The n of busbw is the number of all ranks' devices. There are
    no bare times: a sum between processes is hardly anything but exchange.

    `share_of_stream_bound` is the stream's time for one vector over the sum's. How large it can be depends on the
    engine: in a ring of n ranks each sends 2(n − 1)/n vectors and receives as much at the same time, so it reaches
    n / (2(n − 1)) if both directions are as fast as one, which is 1 for two ranks; a parameter server receives n
    vectors and sends n, so it reaches 1/n if all ranks are on other hosts. Processes on one host share its cores
    and need not obey either.

    Raises RequestError for other algorithms than `native`, which are written over the devices of one process, and for
    sizes for which the memory does not suffice.
    """
    backend = cast(GroupedBackend, trial.backend)
    group, count = backend.group, sum(backend.device_counts)
    if any(name != NATIVE for name in algorithms or ()):
        raise RequestError(f"between processes the sum is the framework's own: leave --algorithm out, or say {NATIVE}")
    own_host = group.hosts[group.rank]
    here = [devices for devices, host in zip(backend.device_counts, group.hosts, strict=True) if host == own_host]
    whole = sizes_to_time(sizes, sum(here))
    # The exchanges that ranks compare with each other's before they make them: none of those is timed.
    warm_up = summing(backend, native, np.zeros(1, dtype=np.float32))
    for _ in range(COMPARED_EXCHANGES):
        warm_up()
    backend.waitall()
    errors = [_error_between(backend, length) for length in sorted({1, 2, count - 1, count + 1, 1001})]
    timed = []
    with stream_between(group, where) as stream:
        for size, seconds in swept_sizes(trial, whole, sizes is not None, lambda: _of_first(group, trial.left())):
            errors.append(_error_between(backend, size // ITEM))
            _time_size(trial, backend, stream, size, seconds)
            timed.append(size)
    trial.errors["sums"] = largest_of(errors)
    find_bandwidths(trial, timed, (NATIVE,), ONE_STREAM, count)


def _of_first(group: Group, seconds: float) -> float:
    """Give all ranks the first one's seconds."""
    return cast(float, SECONDS.unpack(broadcast(group, SECONDS.pack(seconds)))[0])


def _error_between(backend: GroupedBackend, length: int) -> float:
    """Sum uniform float32 vectors, drawn anew on each rank; return the largest relative error on any of their devices.

    The numbers are drawn by rank and device, so that every rank can draw the others' too.
    """

    def drawn(rank: int, place: int) -> np.ndarray:
        return np.random.default_rng([length, rank, place]).random(length, dtype=np.float32)

    rank = backend.group.rank
    vectors = [backend.asarray(drawn(rank, place), device) for place, device in enumerate(backend.devices)]
    sums = [backend.to_numpy(total) for total in native(backend, vectors)]
    expected = np.zeros(length)
    for other, devices in enumerate(backend.device_counts):
        for place in range(devices):
            expected += drawn(other, place)
    error = largest_of(error_of_sum(total, expected) for total in sums)
    return largest_of(one for one, _ in _gathered_pairs(backend.group, (error, 0.0)))


def _time_size(trial: Trial, backend: GroupedBackend, stream: Stream, size: int, seconds: float) -> None:
    """Time the sum and the stream alternately. `size` is that of a vector, in bytes."""
    # Not zeros: pages that were never written to are all the same one, which stays in the cache.
    carried = memoryview(bytearray(b"\1") * size)

    def carry(repeats: int) -> Timing:
        taken = stream.carry(carried, repeats)
        return taken, taken

    reduce = partial(measure_each, backend, summing(backend, native, np.zeros(size // ITEM, dtype=np.float32)))
    ways: dict[str, Callable[[int], Timing]] = {ONE_STREAM: carry, NATIVE: reduce}
    time_repeated(
        trial, {name: partial(_time_together, backend.group, way) for name, way in ways.items()}, size, seconds
    )


def _time_together(group: Group, take: Callable[[int], Timing], repeats: int) -> Timing:
    """Let all ranks begin at once; return the times of the slowest, the same on all of them."""
    barrier(group)
    timings = _gathered_pairs(group, take(repeats))
    return max(sent for sent, _ in timings), max(done for _, done in timings)


def _gathered_pairs(group: Group, numbers: Timing) -> list[Timing]:
    return [cast(Timing, TIMING.unpack(sent)) for sent in gather(group, TIMING.pack(*numbers))]
