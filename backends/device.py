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
    "choose_devices",
    "core_numbers",
    "core_shares",
    "on_cores",
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


def choose_devices(framework: str, kind: str, count: int, gpus: int) -> tuple[Device, ...]:
    """Name `count` devices, `cpu:1` … `cpu:N` or `gpu:0` … `gpu:N-1`, given the number of GPUs that a framework finds.

    `kind` is `cpu`, `gpu`, or `auto`: GPUs where there are enough. Raises BackendError for more GPUs than there are.
    """
    if kind == "gpu" and gpus < count:
        raise BackendError(f"{framework} finds {gpus} GPUs, fewer than the {count} asked for: use --device-kind cpu")
    if kind != "cpu" and gpus >= count:
        return tuple(Device("gpu", index) for index in range(count))
    # cpu:0 is left out everywhere because MXNet queues its waits there: a wait would stand behind the work.
    return tuple(Device("cpu", index) for index in range(1, count + 1))


def core_numbers() -> list[int]:
    """List the cores this process may use; empty where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def available_cores() -> int:
    """Count the cores this process may use (a container or `taskset` may allow fewer than the machine has)."""
    return len(core_numbers()) or os.cpu_count() or 1


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
