"""Which cores there are, and which of them a device's work keeps to."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backends.devices import Device
from backends.errors import BackendError


def processor_flags() -> frozenset[str]:
    """Return what the processor can do, as Linux names it (`avx2`); empty if the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def core_numbers() -> list[int]:
    """List the cores this process may use; empty if the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def available_cores() -> int:
    """Count the cores this process may use (a container or `taskset` may allow fewer than the machine has)."""
    return len(core_numbers()) or os.cpu_count() or 1


def threads_for(devices: int, workers: int) -> int:
    """Divide this process's cores evenly among the workers of so many CPU devices."""
    return max(1, available_cores() // (max(1, devices) * workers))


def check_workers(framework: str, engine: str, workers: int) -> None:
    """Raise BackendError for several workers per device on the sync engine, which has no queue for them."""
    if workers > 1 and engine == "sync":
        raise BackendError(f"{framework}'s sync engine has no queue for {workers} workers to serve: use --workers 1")


def cores_of(devices: Sequence[Device], threads: int | None) -> list[set[int]]:
    """Give each CPU device `threads` separate cores (all cores, for None), as `core_shares` does, and GPUs none."""
    on_cpus = sum(device.kind == "cpu" for device in devices)
    shares = iter([set(core_numbers())] * on_cpus if threads is None else core_shares(on_cpus, threads))
    return [next(shares) if device.kind == "cpu" else set() for device in devices] if on_cpus else []


def core_shares(devices: int, threads: int) -> list[set[int]]:
    """Give each of `devices` its own `threads` cores, or all cores to each if there are too few or none can be chosen.

    A worker that the system moves from core to core, or two on one core, would be measured as a slower device.
    """
    cores = core_numbers()
    if devices * threads > len(cores):
        return [set(cores)] * devices
    return [set(cores[first : first + threads]) for first in range(0, devices * threads, threads)]


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Keep the calling thread, and threads that it starts meanwhile, to some cores; to any if `cores` is empty."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
