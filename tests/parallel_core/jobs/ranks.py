"""Ranks without a framework: plain Python programs that report as ranks do, and launchers for them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from parallel_core.jobs.job import Job

__all__ = ["are_gone", "job_of", "start_launcher", "wait_for_lines", "wait_until"]

BEGIN = """
import faulthandler, json, os, signal, subprocess, sys, threading, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
rank, reports = int(os.environ["RANK"]), int(os.environ["PARALLEL_CORE_REPORTS"])
def report(kind, **fields):
    os.write(reports, json.dumps({"type": kind, **fields}).encode() + b"\\n")
def join():
    report("Progress")
def step(number, images=8):
    report("Progress", exchanges=number, epoch=1, step=number, images=images)
def fail(message, by_others=False, status=1):
    report("Failed", message=message, by_others=by_others, status=status)
    os._exit(status)
def note(text):
    with open(sys.argv[1], "a") as file:
        file.write(f"{text}\\n")
def wait():
    time.sleep(1000)
def leave_with_the_launcher():
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=leave_with_the_launcher, daemon=True).start()
"""
LAUNCHER = """
import sys
from parallel_core.jobs.launcher import launch_job
from tests.parallel_core.jobs.ranks import job_of
sys.exit(launch_job(job_of(*sys.argv[1:])))
"""


def job_of(code: str, *arguments: str) -> Job:
    """Return a job of two ranks, which run this code after `BEGIN`."""
    return Job((sys.executable, "-c", BEGIN + code, *arguments), 2, "torch", 0, 1, 20.0)


def start_launcher(code: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Launch a job in a process of its own, which is to be disturbed."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


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
