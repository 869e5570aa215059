"""Cores of the host: which this process may use, and how devices share them.

macOS does not say which cores there are, and binds no thread to one.
"""

import os
import platform
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backends.devices import Device
from backends.errors import BackendError

PROCESSORS = Path("/proc/cpuinfo")


def processor_field(name: str) -> list[str]:
    """Return a field of Linux's description of the processor, such as `model name`, for each core.

    Empty if the system does not say.
    """
    try:
        lines = PROCESSORS.read_text().splitlines()
    except OSError:
        return []
    fields = [line.partition(":") for line in lines]
    return [value.strip() for field, _, value in fields if field.strip() == name]


def processor_name() -> str:
    """Return the processor's name, or the numbers that Linux gives an ARM processor instead.

    For example `aarch64, implementer 0x41, part 0xd0c`.
    """
    names = processor_field("model name")
    if names:
        return names[0]
    description = [platform.processor() or platform.machine()]
    for field in ("implementer", "part"):
        numbers = processor_field(f"CPU {field}")
        if numbers:
            description.append(f"{field} {numbers[0]}")
    return ", ".join(description)


def processor_flags() -> frozenset[str]:
    """Return the instruction sets of the processor, as Linux names them (`avx2`, on ARM `asimd`).

    Empty if the system does not say.
    """
    flags_of_cores = processor_field("flags") or processor_field("Features")
    return frozenset(flags_of_cores[0].split()) if flags_of_cores else frozenset()


def core_numbers(thread: int = 0) -> list[int]:
    """List the cores that a thread may use, by default the calling one.

    Empty if the system does not say.
    """
    get_affinity = getattr(os, "sched_getaffinity", None)
    return sorted(get_affinity(thread)) if get_affinity is not None else []


def keep_to_cores(cores: Collection[int], thread: int = 0) -> None:
    """Keep a thread, by default the calling one, to these cores, if the system can."""
    set_affinity = getattr(os, "sched_setaffinity", None)
    if set_affinity is not None:
        set_affinity(thread, cores)


def available_cores() -> int:
    """Count the cores this process may use.

    A container or `taskset` may allow fewer than the machine has.
    """
    return len(core_numbers()) or os.cpu_count() or 1


def threads_for(devices: int, workers: int) -> int:
    """Return the threads of each worker if all workers of CPU devices share the cores evenly."""
    all_workers = max(1, devices) * workers
    return max(1, available_cores() // all_workers)


def check_workers(framework: str, engine: str, workers: int) -> None:
    """Raise BackendError for several workers per device on the sync engine, which has no queue."""
    if workers > 1 and engine == "sync":
        raise BackendError(
            f"{framework}'s sync engine has no queue for {workers} workers to serve: use --workers "
            "1"
        )


def cores_of(devices: Sequence[Device], threads: int | None) -> list[set[int]]:
    """Return the cores of each device: `threads` separate ones for a CPU device, none for a GPU.

    Without a number of threads each CPU device has all cores. The list is empty if no device is a
    CPU.
    """
    cpus = [device for device in devices if device.kind == "cpu"]
    if not cpus:
        return []
    if threads is None:
        shares = [set(core_numbers()) for _ in cpus]
    else:
        shares = core_shares(len(cpus), threads)
    cores_of_devices = []
    remaining_shares = iter(shares)
    for device in devices:
        cores = next(remaining_shares) if device.kind == "cpu" else set()
        cores_of_devices.append(cores)
    return cores_of_devices


def core_shares(devices: int, threads: int) -> list[set[int]]:
    """Return for each of `devices` a separate set of `threads` cores.

    If there are too few cores, each device has all of them; the sets are empty if the system does
    not say which there are. A worker that the system moves from core to core, or two on one core,
    would be measured as a slower device.
    """
    cores = core_numbers()
    if devices * threads > len(cores):
        return [set(cores)] * devices
    starts = range(0, devices * threads, threads)
    return [set(cores[start : start + threads]) for start in starts]


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Keep the calling thread, and threads that it starts, to these cores within a `with` block.

    If `cores` is empty, the threads may run on any core.
    """
    if not cores:
        yield
        return
    cores_before = core_numbers()
    keep_to_cores(cores)
    try:
        yield
    finally:
        keep_to_cores(cores_before)
