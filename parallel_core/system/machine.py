"""The machine and the process that a result was measured on, its limits, and the memory that it takes."""

import ctypes
import datetime
import os
import platform
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from backends.host import available_cores, core_numbers
from backends.registry import package_version

ROOT = Path(__file__).resolve().parents[2]
MAX_GIT_SECONDS = 5.0
CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits (Linux, "Control Group v2")."""


def describe_machine() -> dict[str, Any]:
    """Return what a reader needs to compare results: processor, cores, memory in bytes, system, versions, UTC time.

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


def read_limits(file: str) -> list[int]:
    """Return the numbers in a file of the control group; none without a limit, for which the file says `max`."""
    try:
        return [int(word) for word in (CONTROL_GROUP / file).read_text().split()]
    except (OSError, ValueError):
        return []


def processor_quota() -> float | None:
    """Return of how many cores the time may be used; None if there is no limit."""
    limits = read_limits("cpu.max")
    return limits[0] / limits[1] if len(limits) == 2 else None


def peak_memory_growth(fn: Callable[[], object]) -> int | None:
    """Run `fn` and return by how many bytes the peak resident memory exceeds that before; None without Linux's /proc.

    `fn` must wait for what it launches.
    """
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        _return_free_memory()
        # 5 resets the high-water mark (proc(5)).
        reset.write_text("5")
        before = _kibibytes(status, "VmRSS")
        fn()
        return max(0, _kibibytes(status, "VmHWM") - before) * 1024
    except (OSError, KeyError):
        return None


def _return_free_memory() -> None:
    # glibc keeps freed blocks: a second measurement would reuse them, and its memory would look free of charge.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _kibibytes(status: Path, field: str) -> int:
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields[field].split()[0])


@cache
def _commit() -> str:
    # The first line distinguishes a checkout of ours from another project's, which may hold what is installed.
    command = ["git", "rev-parse", "--show-toplevel", "--short", "HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=MAX_GIT_SECONDS)
        top, commit = done.stdout.splitlines()
    except (OSError, ValueError, subprocess.SubprocessError):
        return "unknown"
    return commit if Path(top) == ROOT else "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
