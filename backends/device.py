"""Logical devices: what a backend schedules on. On a CPU several of them share one memory, and split its cores."""

import os
from collections.abc import Iterator
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
    "choose_devices",
    "core_numbers",
    "core_shares",
    "on_cores",
    "threads_for",
    "workers_in_words",
]

DeviceKind = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Device:
    """One queue of work. `str(device)` is `cpu:1` or `gpu:0`."""

    kind: DeviceKind
    index: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


HOST = Device("cpu", 0)
"""The memory of the host that GPUs copy from and to, page-locked so that a copy need not wait for anyone."""


def choose_devices(framework: str, kind: str, count: int, gpus: int, workers: int = 1) -> tuple[Device, ...]:
    """Name `count` devices, `cpu:1` … `cpu:N` or `gpu:0` … `gpu:N-1`, given the number of GPUs that a framework finds.

    `kind` is `cpu`, `gpu`, or `auto`: GPUs where there are enough. Raises BackendError for more GPUs than there are,
    and for GPUs with several workers each.
    """
    if kind == "gpu" and gpus < count:
        raise BackendError(f"{framework} finds {gpus} GPUs, fewer than the {count} asked for: use --device-kind cpu")
    if kind != "cpu" and gpus >= count:
        if workers > 1:
            raise BackendError(
                f"{framework} leaves a GPU's queue to the GPU, and not to {workers} workers: "
                f"use --workers 1, or --device-kind cpu"
            )
        return tuple(Device("gpu", index) for index in range(count))
    # cpu:0 is left out everywhere because MXNet queues its waits there: a wait would stand behind the work.
    return tuple(Device("cpu", index) for index in range(1, count + 1))


def core_numbers() -> list[int]:
    """List the cores this process may use; empty where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def available_cores() -> int:
    """Count the cores this process may use (a container or `taskset` may allow fewer than the machine has)."""
    return len(core_numbers()) or os.cpu_count() or 1


def threads_for(devices: int, workers: int) -> int:
    """Divide this process's cores evenly among the workers of all devices."""
    return max(1, available_cores() // (devices * workers))


def check_workers(framework: str, engine: str, workers: int) -> None:
    """Raise BackendError for several workers per device on an engine that has no queue for them."""
    if workers > 1 and engine == "sync":
        raise BackendError(f"{framework}'s sync engine has no queue for {workers} workers to serve: use --workers 1")


def workers_in_words(workers: int) -> str:
    """Write a number of workers: `one worker`, `2 workers`."""
    return "one worker" if workers == 1 else f"{workers} workers"


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
