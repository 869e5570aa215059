"""Cores and memory of this machine, and how much of them this process may use."""

import os
from dataclasses import asdict
from time import sleep

import psutil
from humanize import naturalsize

from backends.host import available_cores, core_numbers
from parallel_core.doctor.finding import Diagnosis, Finding
from parallel_core.system.formatting import percent
from parallel_core.system.machine import processor_quota, read_limits
from parallel_core.system.machine_watch import sample_machine, watched

__all__ = ["examine_cores", "examine_load", "examine_memory"]

WATCHED_SECONDS = 0.5
"""For so long the doctor sits still and looks what others do."""


def examine_cores() -> Finding:
    """Report the cores of the machine, those of this process, and the share of their time that a container may use."""
    machine, own, quota = os.cpu_count() or 1, available_cores(), processor_quota()
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


def examine_load() -> Finding:
    """Report how much of the cores' time others take at this moment, while this process does nothing."""
    before = sample_machine()
    sleep(WATCHED_SECONDS)
    watch = watched(before, sample_machine())
    figures = asdict(watch)
    if watch.others_share is None:
        return Finding("other work", "absent", "the system does not count it", None, figures)
    text = f"others take {percent(watch.taken_share)} of the cores' time"
    if not watch.is_disturbed:
        return Finding("other work", "fine", text, None, figures)
    cause = "what others take is missing from every measurement: runs repeat more, and widen their intervals"
    return Finding("other work", "doubtful", text, Diagnosis(cause, "top -b -n 1 -o %CPU | head -15"), figures)


def examine_memory() -> Finding:
    """Report the memory of the machine, or of the container, and how much of it is free."""
    memory = psutil.virtual_memory()
    limit = min([memory.total, *read_limits("memory.max")])
    figures = {"total_bytes": limit, "available_bytes": min(memory.available, limit)}
    text = f"{naturalsize(limit, binary=True)}, {naturalsize(figures['available_bytes'], binary=True)} free"
    return Finding("memory", "fine", text, None, figures)
