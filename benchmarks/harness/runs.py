"""One run of parallel-core in a fresh process, and processes that keep cores busy beside it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from backends.host import core_numbers
from benchmarks.harness.side_by_side import parallel_core
from parallel_core.system.subprocesses import Outcome, supervise

DEADLINE = 1200.0
"""Seconds that a run may take."""
SPIN = (sys.executable, "-c", "while True: pass")


def run_experiment(name: str, *options: object) -> tuple[Outcome, dict[str, Any] | None]:
    """Run an experiment; return how the process ended, and its result, None without one."""
    command = parallel_core("run", name, *options)
    outcome = asyncio.run(supervise(command, DEADLINE, set(core_numbers())))
    result: dict[str, Any] | None = None
    if not outcome.timed_out:
        with suppress(ValueError):
            result = json.loads(outcome.output)
    return outcome, result


@contextmanager
def spinning(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Let processes of the usual priority spin meanwhile."""
    running = [subprocess.Popen(SPIN) for _ in range(processes)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()
