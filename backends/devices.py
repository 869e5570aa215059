"""Logical devices: what a backend schedules on. On a CPU several of them share one memory, and split its cores."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from backends.errors import BackendError

__all__ = [
    "HOST",
    "Device",
    "DeviceKind",
    "available_cores",
    "check_workers",
    "core_numbers",
    "core_shares",
    "cores_of",
    "on_cores",
    "same_memory",
    "threads_for",
    "workers_in_words",
]

DeviceKind = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Device:
    """One queue of work. `str(device)` is `cpu:1` or `gpu:0`, or `gpu:0/1` for one of several streams on a GPU."""

    kind: DeviceKind
    index: int
    stream: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}{'' if self.stream is None else f'/{self.stream}'}"


HOST = Device("cpu", 0)
"""The memory of the host that GPUs copy from and to, page-locked so that a copy need not wait for anyone."""


def same_memory(first: Device, second: Device) -> bool:
    """Tell whether what lies on one device can be read on the other: on CPUs always, and on two streams of one GPU."""
    return first.kind == second.kind and (first.kind == "cpu" or first.index == second.index)


def core_numbers() -> list[int]:
    """List the cores this process may use; empty where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def available_cores() -> int:
    """Count the cores this process may use (a container or `taskset` may allow fewer than the machine has)."""
    return len(core_numbers()) or os.cpu_count() or 1


def threads_for(devices: int, workers: int) -> int:
    """Divide this process's cores evenly among the workers of so many CPU devices."""
    return max(1, available_cores() // (max(1, devices) * workers))


def check_workers(framework: str, engine: str, workers: int) -> None:
    """Raise BackendError for several workers per device on an engine that has no queue for them."""
    if workers > 1 and engine == "sync":
        raise BackendError(f"{framework}'s sync engine has no queue for {workers} workers to serve: use --workers 1")


def workers_in_words(workers: int) -> str:
    """Write a number of workers: `one worker`, `2 workers`."""
    return "one worker" if workers == 1 else f"{workers} workers"


def cores_of(devices: Sequence[Device], threads: int | None) -> list[set[int]]:
    """Give each CPU device `threads` cores of its own (all cores, for None), as `core_shares` does, and GPUs none."""
    on_cpus = sum(device.kind == "cpu" for device in devices)
    shares = iter([set(core_numbers())] * on_cpus if threads is None else core_shares(on_cpus, threads))
    return [next(shares) if device.kind == "cpu" else set() for device in devices] if on_cpus else []


def core_shares(devices: int, threads: int) -> list[set[int]]:
    """Give each of `devices` its own `threads` cores; all cores to each where there are too few, or none can be chosen.

    A worker that the system moves from core to core, or two on one core, would be measured as a slower device.
    """
    cores = core_numbers()
    if devices * threads > len(cores):
        return [set(cores)] * devices
    return [set(cores[first : first + threads]) for first in range(0, devices * threads, threads)]


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Keep the calling thread, and the threads that it starts meanwhile, to some cores; to any if there are none."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
