"""Logical devices: what a backend schedules on. On a CPU several of them share one memory, and split its cores."""

import os
from dataclasses import dataclass
from typing import Literal

__all__ = ["Device", "DeviceKind", "available_cores", "logical_devices"]

DeviceKind = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Device:
    """One queue of work. `str(device)` is `cpu:1` or `gpu:0`."""

    kind: DeviceKind
    index: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


def logical_devices(kind: DeviceKind, count: int) -> tuple[Device, ...]:
    """Name `count` devices of a kind: `cpu:1` … `cpu:N`, or `gpu:0` … `gpu:N-1`."""
    # cpu:0 is left out everywhere because MXNet queues its waits there: a wait would stand behind the work.
    first = 1 if kind == "cpu" else 0
    return tuple(Device(kind, first + offset) for offset in range(count))


def available_cores() -> int:
    """Count the cores this process may use (a container or `taskset` may allow fewer than the machine has)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
