"""Ranks without a framework, which are plain Python programs, and launchers for them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from parallel_core.jobs.job import Job

__all__ = ["are_gone", "job_of", "start_launcher", "wait_for_lines", "wait_until"]

BEGIN = """
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
def note(text):
    with open(sys.argv[1], "a") as file:
        file.write(f"{text}\\n")
def wait():
    time.sleep(1000)
"""
LAUNCHER = """
import sys
from parallel_core.jobs.launcher import launch_job
from tests.parallel_core.jobs.ranks import job_of
sys.exit(launch_job(job_of(*sys.argv[1:])))
"""


def job_of(code: str, *arguments: str) -> Job:
    """Return a job of two ranks, which run this code after `BEGIN`."""
    return Job((sys.executable, "-c", BEGIN + code, *arguments), 2, "torch", 1, 20.0)


def start_launcher(
    code: str, *arguments: str, stderr: int = subprocess.PIPE
) -> "subprocess.Popen[bytes]":
    """Launch a job in a process of its own, which is to be disturbed."""
    command = [sys.executable, "-c", LAUNCHER, code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)


def wait_until(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that comes when the machine lets it."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def wait_for_lines(lines: int, path: Path) -> list[str]:
    """Wait until a file has so many lines, and return them."""
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= lines)
    return path.read_text().splitlines()


def are_gone(pids: Iterable[str]) -> bool:
    """Wait until processes are gone; fail if they stay."""
    for pid in pids:
        wait_until(lambda pid=pid: _is_gone(pid))
    return True


def _is_gone(pid: str) -> bool:
    try:
        # A killed process stays in the table until init has taken note of it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
