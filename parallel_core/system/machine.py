"""The machine that a result was measured on, its limits, and its other work during the timing.

The system counts the seconds that every core worked. Without those that this process and its
children worked, they are what other programs took of this process's cores. Linux counts a
hypervisor's share as stolen. The counts have a grain of 10 ms, so nothing is concluded from less
than LEAST_SECONDS.
"""

import datetime
import os
import platform
import resource
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil

from backends.host import (
    available_cores,
    core_numbers,
    processor_field,
    processor_name,
)
from backends.registry import package_version
from parallel_core.system.formatting import figure, percent

ROOT = Path(__file__).resolve().parents[2]
MAX_GIT_SECONDS = 5.0
CONTROL_GROUP = Path("/sys/fs/cgroup")
"""The folder of a container's own limits."""
QUOTA_FILES = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""The files of a limit on computing, in version 2 of control groups and in version 1."""
PRESSURE = Path("/proc/pressure/cpu")

CONFIGURED_CORES = os.sysconf("SC_NPROCESSORS_CONF")
"""The cores that the machine has, also those that are switched off."""
WORKING = ("user", "nice", "system", "irq", "softirq")
"""The times of a core at work; macOS counts no interrupts."""

WORTH_SAYING = 0.05
"""The share of the cores' time from which on other processes are reported, and times are measured
again.
"""
LEAST_SECONDS = 0.1
"""The fewest seconds of cores that mean anything, because the counts are coarse."""
UNSTEADY = 0.9
"""The slowest clock, as a share of the fastest one, below which a difference is reported."""


def describe_machine() -> dict[str, Any]:
    """Return the processor, cores, memory in bytes, system, versions and UTC time of a result.

    `commit` is that of the checkout that contains this package, or `unknown` outside of one.
    """
    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "core_numbers": core_numbers(),
        "usable_cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "parallel_core": package_version(),
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def processor_quota() -> float | None:
    """Return the number of cores whose time a container may use; None if there is no limit."""
    for files in QUOTA_FILES:
        try:
            # The microseconds of computing in each period, of both in one file or in two.
            texts = [(CONTROL_GROUP / file).read_text() for file in files]
            quota, period = map(int, " ".join(texts).split())
        except (OSError, ValueError):
            # The file is not there, or says `max`: there is no limit.
            continue
        if quota > 0:
            return quota / period
    return None


def usable_cores() -> float:
    """Return the number of cores that this process may use, which a container's quota may bound."""
    cores = float(available_cores())
    quota = processor_quota()
    return min(cores, quota) if quota else cores


def free_memory() -> int:
    """Return the bytes that this process may still take."""
    free: int = psutil.virtual_memory().available
    try:
        # A container without a limit says `max`.
        limit = int((CONTROL_GROUP / "memory.max").read_text())
        taken = int((CONTROL_GROUP / "memory.current").read_text())
        return max(0, min(free, limit - taken))
    except (OSError, ValueError):
        return free


@dataclass(frozen=True)
class MachineSample:
    """The counters of a moment, in seconds; None for those that the system does not have."""

    at: float
    """The time of the moment."""
    own: float
    """The seconds that this process and its children worked."""
    worked: float | None
    """The seconds that this process's cores worked, for all processes."""
    stolen: float | None
    """The seconds that a hypervisor took from this process's cores."""
    waited: float | None
    """The seconds in which a process waited for a core."""
    mhz: tuple[float, ...]
    """The clocks of the cores."""


@dataclass(frozen=True)
class MachineWatch:
    """The shares of the cores' time that other processes took while something was timed."""

    watched_seconds: float
    cores: float
    """The number of cores that this process may use (`usable_cores`)."""
    others_share: float | None
    """The share that other processes took."""
    stolen_share: float | None
    """The share that a hypervisor took."""
    waiting_share: float | None
    """The share of the time in which a process, of this program or not, waited for a core."""
    slowest_mhz: float | None
    fastest_mhz: float | None
    repeated_rounds: int = 0
    """The number of rounds that were left out because other processes took more of the cores in
    them.
    """

    @property
    def taken_share(self) -> float:
        """The share that other processes and the hypervisor took.

        It is 0 if it is unknown, or too small to be counted.
        """
        share = (self.others_share or 0.0) + (self.stolen_share or 0.0)
        taken_seconds = share * self.watched_seconds * self.cores
        if taken_seconds < LEAST_SECONDS:
            return 0.0
        return share

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes took enough for a report, and for a new measurement."""
        return self.taken_share >= WORTH_SAYING

    def in_words(self, threads: int = 0) -> tuple[str, ...]:
        """Return sentences on threads without a core, on other processes, and on an unsteady clock,
        as far as there are any.
        """
        sentences = []
        noun = "core" if self.cores == 1 else "cores"
        cores = f"{figure(self.cores)} {noun}"
        if threads > self.cores:
            sentences.append(
                f"{threads} threads of devices share the time of {cores}: not all can work at once."
            )
        if self.is_disturbed:
            again = f" Rounds repeated: {self.repeated_rounds}." if self.repeated_rounds else ""
            sentences.append(
                f"Other processes took {percent(self.taken_share)} of the time of {cores} during "
                f"the timing.{again} Intervals allow for that."
            )
        slowest, fastest = self.slowest_mhz or 0.0, self.fastest_mhz or 0.0
        is_unsteady = 0 < slowest < UNSTEADY * fastest
        if is_unsteady:
            sentences.append(
                f"The cores' clock ran at {figure(slowest)} to {figure(fastest)} MHz meanwhile: "
                "what was timed last may differ from what was timed first."
            )
        return tuple(sentences)


def sample_machine() -> MachineSample:
    """Read the system's counters, which takes about 0.1 ms."""
    worked, stolen = _core_seconds()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    # Only x86 processors tell their clocks.
    clocks = tuple(map(float, processor_field("cpu MHz")))
    return MachineSample(perf_counter(), own, worked, stolen, _waited_seconds(), clocks)


def watched(before: MachineSample, after: MachineSample) -> MachineWatch:
    """Return the shares that other processes took of the cores' time between two samples."""
    seconds = after.at - before.at
    core_seconds = seconds * available_cores()
    worked = _counted_between(before.worked, after.worked)
    others = None
    if worked is not None:
        own = after.own - before.own
        others = max(0.0, worked - own)
    stolen = _counted_between(before.stolen, after.stolen)
    waited = _counted_between(before.waited, after.waited)
    # An idle core is slow, so the fastest core of a moment shows the clock of working cores.
    fastest_of_samples = [max(sample.mhz) for sample in (before, after) if sample.mhz]
    return MachineWatch(
        seconds,
        usable_cores(),
        others_share=None if others is None else others / core_seconds,
        stolen_share=None if stolen is None else stolen / core_seconds,
        waiting_share=None if waited is None else waited / seconds,
        slowest_mhz=min(fastest_of_samples, default=None),
        fastest_mhz=max(fastest_of_samples, default=None),
    )


def _counted_between(before: float | None, after: float | None) -> float | None:
    """Return the difference of two counters, at least 0; None if the system does not count."""
    if before is None or after is None:
        return None
    return max(0.0, after - before)


def joined_watches(
    watches: Sequence[MachineWatch], repeated_rounds: int = 0
) -> MachineWatch | None:
    """Return one watch over the times of several watches; None if there are none.

    Shares are averages, weighted by the seconds of the watches that have them.
    """
    if not watches:
        return None

    def mean(name: str) -> float | None:
        weighted_sum = seconds = 0.0
        for watch in watches:
            share = getattr(watch, name)
            if share is not None:
                weighted_sum += share * watch.watched_seconds
                seconds += watch.watched_seconds
        return weighted_sum / seconds if seconds else None

    slowest = [watch.slowest_mhz for watch in watches if watch.slowest_mhz is not None]
    fastest = [watch.fastest_mhz for watch in watches if watch.fastest_mhz is not None]
    return MachineWatch(
        sum(watch.watched_seconds for watch in watches),
        min(watch.cores for watch in watches),
        mean("others_share"),
        mean("stolen_share"),
        mean("waiting_share"),
        min(slowest, default=None),
        max(fastest, default=None),
        repeated_rounds + sum(watch.repeated_rounds for watch in watches),
    )


def _core_seconds() -> tuple[float | None, float | None]:
    """Return the seconds that this process's cores worked, for all processes, and were stolen.

    (None, None) if the system does not count them.
    """
    try:
        cores = psutil.cpu_times(percpu=True)
    except (OSError, ValueError):
        return None, None
    numbers = core_numbers()
    if 0 < len(numbers) < len(cores):
        # They are in order, without numbers and without those that are switched off.
        if len(cores) < CONFIGURED_CORES:
            return None, None
        cores = [cores[number] for number in numbers]
    worked = stolen = 0.0
    for times in cores:
        worked += sum(getattr(times, kind, 0.0) for kind in WORKING)
        stolen += getattr(times, "steal", 0.0)
    return worked, stolen


def _waited_seconds() -> float | None:
    """Return the seconds in which a process waited for a core; None if they are not counted."""
    try:
        first_line = PRESSURE.read_text().splitlines()[0]
        _, _, microseconds = first_line.rpartition("total=")
        return int(microseconds) / 1e6
    except (OSError, ValueError, IndexError):
        return None


@cache
def _commit() -> str:
    """Return the commit of this package's checkout; `unknown` if it is installed elsewhere."""
    # The first line of the answer tells whether the checkout is ours: an installed package may lie
    # in another project's.
    command = ["git", "rev-parse", "--show-toplevel", "--short", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=MAX_GIT_SECONDS
        )
        top, commit = done.stdout.splitlines()
    except (OSError, ValueError, subprocess.SubprocessError):
        return "unknown"
    return commit if Path(top) == ROOT else "unknown"
