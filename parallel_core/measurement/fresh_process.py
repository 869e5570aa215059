"""Run an experiment in a process of its own: a framework reads its threads, workers and engine once, at import."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from parallel_core.errors import DISTURBED, MeasurementError, RequestError
from parallel_core.measurement.result import Result
from parallel_core.system.subprocesses import Outcome

__all__ = ["measure_elsewhere"]

MAX_RUN_SECONDS = 300.0
"""Seconds that the process may take."""
REFUSED = 2
"""The exit status of a request that cannot be met."""


def measure_elsewhere(
    experiment: str, options: Mapping[str, str | float | Sequence[str]], seconds: float | None = None
) -> Result:
    """Run `parallel-core run EXPERIMENT --OPTION VALUE …` in a fresh process and return its result.

    An option with a sequence of values is given once for each of them. Raises RequestError if the process refuses the
    request (a framework that is not installed, say) and MeasurementError if it fails, both with the process's reason.
    It fails if the process takes longer than so many seconds, MAX_RUN_SECONDS unless they are given. An invalid result
    is returned with its problems.
    """
    deadline = MAX_RUN_SECONDS if seconds is None else seconds
    words: list[str] = []
    for name, values in options.items():
        for value in [values] if isinstance(values, str | int | float) else values:
            words += [f"--{name}", str(value)]
    # -P: the current folder may hold another checkout than the one that is installed.
    command = [sys.executable, "-P", "-m", "parallel_core", "run", experiment, *words, "--json", "-"]
    try:
        # In this process's group, so that a signal to the group ends both.
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline, check=False)
        outcome = Outcome(done.returncode, done.stdout, done.stderr, timed_out=False)
    except subprocess.TimeoutExpired:
        outcome = Outcome(-9, "", "", timed_out=True)
    if outcome.status in (0, 1, DISTURBED) and not outcome.timed_out:
        try:
            return Result.from_json(json.loads(outcome.output))
        except ValueError:
            pass
    reason = outcome.reason(deadline)
    if outcome.status == REFUSED:
        raise RequestError(reason)
    raise MeasurementError(f"{experiment} in a process of its own: {reason}")
