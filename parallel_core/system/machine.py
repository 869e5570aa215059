"""The machine and the process that a result was measured on, its limits, and what else it did while
it was timed.

Who took time of this process's cores, and how fast they ran: Linux counts what every core did
(`/proc/stat`). What it worked, less what this process and its children worked, is what the rest
took of it. A hypervisor's share is counted as stolen. The counts have a grain of 10 ms, so nothing
is concluded from less than LEAST_SECONDS.
"""

import datetime
import os
import platform
import resource
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from backends.host import available_cores, core_numbers, release_freed_memory
from backends.registry import package_version
from parallel_core.system.formatting import figure, percent

ROOT = Path(__file__).resolve().parents[2]
MAX_GIT_SECONDS = 5.0
CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits (Linux, "Control Group v2")."""
STATISTICS = Path("/proc/stat")
PRESSURE = Path("/proc/pressure/cpu")
PROCESSORS = Path("/proc/cpuinfo")
TICKS_PER_SECOND = 100
"""Of the counts of /proc/stat, on every Linux that frameworks run on (proc(5), USER_HZ)."""

WORTH_SAYING = 0.05
"""From this share of the cores' time on, what other processes took is reported, and intervals allow
for it.
"""
LEAST_SECONDS = 0.1
"""Less than this says nothing, because the counts are coarse."""
UNSTEADY = 0.9
"""The slowest clock as a share of the fastest one, below which it is said."""


def describe_machine() -> dict[str, Any]:
    """Return what a reader needs to compare results: processor, cores, memory in bytes, system,
    versions, UTC time.

    `commit` is the checkout's that this package lies in; `unknown` outside of one.
    """
    return {
        "processor": _processor(),
        "cores": available_cores(),
        "core_numbers": core_numbers(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "parallel_core": package_version(),
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def processor_quota() -> float | None:
    """Return of how many cores the time may be used; None if there is no limit."""
    try:
        # Microseconds of computing in each period; without a limit the file says `max`.
        quota, period = (CONTROL_GROUP / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None


def usable_cores() -> float:
    """Return how many cores this process may use: a container's quota may allow less than the cores
    that it sees.
    """
    return min(float(available_cores()), processor_quota() or float("inf"))


def peak_memory_growth(fn: Callable[[], object]) -> int | None:
    """Run `fn` and return by how many bytes the peak resident memory exceeds that before.

    None without Linux's /proc. `fn` must wait for what it launches.
    """
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        # A second measurement would reuse freed blocks that malloc keeps, and its memory would look
        # free of charge.
        release_freed_memory()
        # 5 resets the high-water mark (proc(5)).
        reset.write_text("5")
        before = _kibibytes(status, "VmRSS")
        fn()
        return max(0, _kibibytes(status, "VmHWM") - before) * 1024
    except (OSError, KeyError):
        return None


@dataclass(frozen=True)
class MachineSample:
    """Counters up to a moment, in seconds; None where the system does not count."""

    at: float
    own: float
    worked: float | None
    stolen: float | None
    waited: float | None
    mhz: tuple[float, ...]


@dataclass(frozen=True)
class MachineWatch:
    """The shares of the cores' time that other processes took."""

    watched_seconds: float
    cores: float
    """How many this process may use; a fraction if a container's quota allows less than the cores
    that it sees.
    """
    others_share: float | None
    stolen_share: float | None
    waiting_share: float | None
    """The share of the time in which some process, of this program or not, waited for a core."""
    slowest_mhz: float | None
    fastest_mhz: float | None
    repeated_rounds: int = 0
    """How many rounds were left out because other processes took more of the cores in them than in
    those that count.
    """

    @property
    def taken_share(self) -> float:
        """The share that other processes or the hypervisor took.

        0 if it is unknown, or too little to be counted.
        """
        share = (self.others_share or 0.0) + (self.stolen_share or 0.0)
        return share if share * self.watched_seconds * self.cores >= LEAST_SECONDS else 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes took enough for a report, and for a new measurement."""
        return self.taken_share >= WORTH_SAYING

    def in_words(self, threads: int = 0) -> tuple[str, ...]:
        """Say, where it matters, what other processes took, how unsteady the clock was, and if
        threads lack cores.
        """
        sentences = []
        cores = f"{figure(self.cores)} {'core' if self.cores == 1 else 'cores'}"
        if threads > self.cores:
            sentences.append(
                f"{threads} threads of devices share the time of {cores}: not all can work at once."
            )
        if self.is_disturbed:
            again = f" Rounds repeated: {self.repeated_rounds}." if self.repeated_rounds else ""
            sentences.append(
                f"Other processes took {percent(self.taken_share)} of the time of {cores} during "
                f"the timing.{again} "
                "Intervals allow for that: a short run in a quiet moment has narrower ones."
            )
        if self.slowest_mhz and self.fastest_mhz and self.slowest_mhz < UNSTEADY * self.fastest_mhz:
            sentences.append(
                f"The cores' clock ran at {figure(self.slowest_mhz)} to {figure(self.fastest_mhz)} "
                "MHz meanwhile: "
                "what was timed last may differ from what was timed first."
            )
        return tuple(sentences)


def sample_machine() -> MachineSample:
    """Read what the system has counted so far; it takes about 0.1 ms."""
    worked, stolen = _core_seconds()
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return MachineSample(perf_counter(), own, worked, stolen, _waited_seconds(), _clocks())


def watched(before: MachineSample, after: MachineSample) -> MachineWatch:
    """Return what happened between two samples."""
    seconds = after.at - before.at
    cores = usable_cores()

    def share(first: float | None, last: float | None, own: float, of: float) -> float | None:
        return None if first is None or last is None else max(0.0, last - first - own) / of

    own, of = after.own - before.own, seconds * available_cores()
    mhz = (*before.mhz, *after.mhz)
    return MachineWatch(
        seconds,
        cores,
        share(before.worked, after.worked, own, of),
        share(before.stolen, after.stolen, 0.0, of),
        share(before.waited, after.waited, 0.0, seconds),
        # An idle core rests: the fastest one of a moment is the one that worked.
        min((max(one.mhz) for one in (before, after) if one.mhz), default=None),
        max(mhz, default=None),
    )


def joined_watches(
    watches: Sequence[MachineWatch], repeated_rounds: int = 0
) -> MachineWatch | None:
    """Put watches of several times together; None if there is none."""
    if not watches:
        return None
    seconds = sum(watch.watched_seconds for watch in watches)

    def known(name: str) -> list[tuple[float, float]]:
        return [
            (value, watch.watched_seconds)
            for watch in watches
            if (value := getattr(watch, name)) is not None
        ]

    def mean(name: str) -> float | None:
        total = sum(weight for _, weight in known(name))
        return sum(value * weight for value, weight in known(name)) / total if total else None

    return MachineWatch(
        seconds,
        min(watch.cores for watch in watches),
        mean("others_share"),
        mean("stolen_share"),
        mean("waiting_share"),
        min((mhz for mhz, _ in known("slowest_mhz")), default=None),
        max((mhz for mhz, _ in known("fastest_mhz")), default=None),
        repeated_rounds + sum(watch.repeated_rounds for watch in watches),
    )


def _core_seconds() -> tuple[float | None, float | None]:
    """Return how long the cores of this process have worked, for whomever, and how long they were
    stolen.
    """
    own = {f"cpu{number}" for number in core_numbers()}
    try:
        rows = [
            line.split()
            for line in STATISTICS.read_text().splitlines()
            if line.partition(" ")[0] in own
        ]
        # user, nice, system, idle, iowait, irq, softirq, steal (proc(5)).
        counts = [[int(word) for word in row[1:9]] for row in rows]
        worked = sum(sum(count[:3]) + count[5] + count[6] for count in counts)
        stolen = sum(count[7] for count in counts)
    except (OSError, ValueError, IndexError):
        return None, None
    return (worked / TICKS_PER_SECOND, stolen / TICKS_PER_SECOND) if counts else (None, None)


def _waited_seconds() -> float | None:
    try:
        some = PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None


def _clocks() -> tuple[float, ...]:
    """Return the clocks of the cores, in MHz.

    Nothing if the system does not say, as on processors but x86.
    """
    try:
        lines = PROCESSORS.read_text().splitlines()
        return tuple(float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz"))
    except (OSError, ValueError):
        return ()


def _kibibytes(status: Path, field: str) -> int:
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields[field].split()[0])


@cache
def _commit() -> str:
    # The first line distinguishes a checkout of ours from another project's, which may hold what is
    # installed.
    command = ["git", "rev-parse", "--show-toplevel", "--short", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=MAX_GIT_SECONDS
        )
        top, commit = done.stdout.splitlines()
    except (OSError, ValueError, subprocess.SubprocessError):
        return "unknown"
    return commit if Path(top) == ROOT else "unknown"


def _processor() -> str:
    try:
        lines = PROCESSORS.read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
