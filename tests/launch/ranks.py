"""Ranks without a framework: plain Python programs that report as ranks do, and the launcher in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

__all__ = ["BEGIN", "LAUNCH", "is_gone", "job_command", "run_job", "start_job", "wait_for"]

BEGIN = """
import faulthandler, json, os, signal, sys, threading, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
rank, reports = int(os.environ["RANK"]), int(os.environ["PARALLEL_CORE_REPORTS"])
def report(kind, **fields):
    os.write(reports, json.dumps({"type": kind, **fields}).encode() + b"\\n")
def join():
    report("Joined", rank=rank, host=f"host-{rank}")
def step(number, images=8):
    report("Progress", exchanges=number, epoch=1, step=number, images=images)
def fail(message, by_others=False, status=1):
    report("Failed", message=message, by_others=by_others, status=status)
    os._exit(status)
def leave_with_the_agent():
    os.read(0, 1)
    os._exit(9)
threading.Thread(target=leave_with_the_agent, daemon=True).start()
def note_pid():
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
def sleep():
    time.sleep(1000)
"""
LAUNCH = """
import sys
from parallel_core.launch.job import Host, Job
from parallel_core.launch.launcher import launch
from parallel_core.__main__ import complain
from parallel_core.errors import RequestError
processes, timeout, restarts, *command = sys.argv[1:]
job = Job(tuple(command), (Host(None, int(processes)),), "torch", 0, "127.0.0.1", "127.0.0.1", 1, None, float(timeout))
try:
    sys.exit(launch(job, restarts=int(restarts)))
except RequestError as error:
    sys.exit(complain(str(error), 2))
"""


def job_command(code: str, *arguments: str, processes: int = 2, timeout: float = 20, restarts: int = 0) -> list[str]:
    """Return the command of a launcher whose ranks run this code, after `BEGIN`, with these arguments."""
    rank = [sys.executable, "-c", BEGIN + code, *arguments]
    return [sys.executable, "-c", LAUNCH, str(processes), str(timeout), str(restarts), *rank]


def run_job(
    code: str, *arguments: str, processes: int = 2, timeout: float = 20, restarts: int = 0
) -> "subprocess.CompletedProcess[bytes]":
    """Launch a job and wait for its end."""
    command = job_command(code, *arguments, processes=processes, timeout=timeout, restarts=restarts)
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


def start_job(code: str, *arguments: str, processes: int = 2) -> "subprocess.Popen[bytes]":
    """Launch a job that is to be disturbed."""
    command = job_command(code, *arguments, processes=processes)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(lines: int, path: "os.PathLike[str]") -> Sequence[str]:
    """Wait until a file has so many lines, and return them."""
    for _ in range(600):
        if os.path.exists(path):  # noqa: PTH110
            with open(path) as file:  # noqa: PTH123
                found = file.read().splitlines()
            if len(found) >= lines:
                return found
        time.sleep(0.05)
    raise AssertionError(f"{path} has not got {lines} lines")


def is_gone(pid: int) -> bool:
    """Wait until a process is gone, or for long enough to tell that it stays."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
                # A killed process stays in the table until init has taken note of it.
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False
