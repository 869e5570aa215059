"""Cores and memory of this machine, and how much of them this process may use."""

import os
from pathlib import Path

import psutil
from humanize import naturalsize

from backends.host import available_cores, core_numbers
from parallel_core.doctor.finding import Diagnosis, Finding

__all__ = ["examine_cores", "examine_memory"]

CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits (Linux, "Control Group v2")."""


def examine_cores() -> Finding:
    """Report the cores of the machine, those of this process, and the share of their time that a container may use."""
    machine, own, limits = os.cpu_count() or 1, available_cores(), _read_limits("cpu.max")
    quota = limits[0] / limits[1] if len(limits) == 2 else None
    figures = {"machine": machine, "available": own, "core_numbers": core_numbers(), "quota": quota}
    text = f"{own} of {machine} may be used" if own < machine else f"{own}"
    if quota is not None and quota < own:
        cores = ",".join(map(str, core_numbers()[: max(1, int(quota))]))
        cause = (
            f"a container's quota is the time of {quota:g} cores, and {own} are in use: the kernel stops them whenever "
            "the quota is used up, in the middle of a measurement"
        )
        diagnosis = Diagnosis(cause, f"taskset --cpu-list {cores} parallel-core compare")
        return Finding("CPU cores", "doubtful", f"{text}, for the time of {quota:g}", diagnosis, figures)
    if own == 1:
        cause = "two devices on one core take turns: nothing can be seen to run at the same time"
        command = f"taskset --cpu-list 0-{machine - 1} parallel-core doctor" if machine > own else "lscpu"
        return Finding("CPU cores", "doubtful", text, Diagnosis(cause, command), figures)
    return Finding("CPU cores", "fine", text, None, figures)


def examine_memory() -> Finding:
    """Report the memory of the machine, or of the container, and how much of it is free."""
    memory = psutil.virtual_memory()
    limit = min([memory.total, *_read_limits("memory.max")])
    figures = {"total_bytes": limit, "available_bytes": min(memory.available, limit)}
    text = f"{naturalsize(limit, binary=True)}, {naturalsize(figures['available_bytes'], binary=True)} free"
    return Finding("memory", "fine", text, None, figures)


def _read_limits(file: str) -> list[int]:
    # Without a limit the file says `max`.
    try:
        return [int(word) for word in (CONTROL_GROUP / file).read_text().split()]
    except (OSError, ValueError):
        return []
