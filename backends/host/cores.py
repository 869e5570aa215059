"""Cores of the host: which this process may use, and how devices share them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backends.devices import Device
from backends.errors import BackendError


def processor_flags() -> frozenset[str]:
    """Return the instruction sets of the processor, as Linux names them (`avx2`).

    Empty if the system does not say.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        if line.startswith("flags"):
            _, _, flags = line.partition(":")
            return frozenset(flags.split())
    return frozenset()


def core_numbers() -> list[int]:
    """List the cores this process may use; empty if the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def available_cores() -> int:
    """Count the cores this process may use.

    A container or `taskset` may allow fewer than the machine has.
    """
    return len(core_numbers()) or os.cpu_count() or 1


def threads_for(devices: int, workers: int) -> int:
    """Divide this process's cores evenly among the workers of CPU devices."""
    return max(1, available_cores() // (max(1, devices) * workers))


def check_workers(framework: str, engine: str, workers: int) -> None:
    """Raise BackendError for several workers per device on the sync engine, which has no queue."""
    if workers > 1 and engine == "sync":
        raise BackendError(
            f"{framework}'s sync engine has no queue for {workers} workers to serve: use --workers "
            "1"
        )


def cores_of(devices: Sequence[Device], threads: int | None) -> list[set[int]]:
    """Give each CPU device `threads` separate cores, as `core_shares` does, and GPUs none.

    Without a number of threads each has all cores. The list is empty if no device is a CPU.
    """
    cpus = [device for device in devices if device.kind == "cpu"]
    if not cpus:
        return []
    if threads is None:
        shares = [set(core_numbers()) for _ in cpus]
    else:
        shares = core_shares(len(cpus), threads)
    remaining = iter(shares)
    return [next(remaining) if device.kind == "cpu" else set() for device in devices]


def core_shares(devices: int, threads: int) -> list[set[int]]:
    """Give each of `devices` its own `threads` cores.

    If there are too few, or none can be chosen, each has all cores. A worker that the system moves
    from core to core, or two on one core, would be measured as a slower device.
    """
    cores = core_numbers()
    if devices * threads > len(cores):
        return [set(cores)] * devices
    return [set(cores[start : start + threads]) for start in range(0, devices * threads, threads)]


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Keep the calling thread, and threads that it starts meanwhile, to some cores.

    If `cores` is empty, they may run on any.
    """
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
