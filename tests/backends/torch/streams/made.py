"""Streams for tests of them, on devices that are names."""

from backends.devices import Device
from backends.torch.streams.worker import PooledStream, WorkerStream

FIRST, SECOND = Device("cpu", 1), Device("cpu", 2)
SHORTLY = 0.05
"""Seconds in which what nothing holds back would happen."""


def stream(device: Device = FIRST) -> WorkerStream:
    return WorkerStream(device, f"{device} test", set(), lambda: None)


def pool(device: Device = FIRST, workers: int = 2) -> PooledStream:
    return PooledStream(device, f"{device} pool", set(), lambda: None, workers)
