"""Measure in a separate process: a framework reads its threads, workers and engine once, at import.

All such processes run `parallel-core measure`, which does one run or several, and prints a line of
JSON for each. It ends as soon as a pipe on its standard input does: the process that started it is
gone then.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from parallel_core.measurement.result import Result
from parallel_core.system.errors import REFUSED, MeasurementError, RequestError
from parallel_core.system.subprocesses import Outcome, lifeline

MAX_RUN_SECONDS, MAX_BUDGETS = 300.0, 5
"""Seconds that the process may take unless another number is given, or as many times its budget if
that is more.
"""


def measuring_command(
    python: str, runs: Iterable[tuple[str, Mapping[str, Any]]], turns: int | None = None
) -> list[str]:
    """Return the command of a process that does runs, each an experiment with its options (see
    `run_arguments`).

    It takes turns with others if there is a descriptor on which it is to end its turns.
    """
    # -P: the current folder may hold another checkout than the installed one.
    command = [python, "-P", "-m", "parallel_core", "measure"]
    if turns is not None:
        command.append(f"--turns={turns}")
    return [*command, *(run_arguments(experiment, options) for experiment, options in runs)]


def run_arguments(experiment: str, options: Mapping[str, Any]) -> str:
    """Return what stands behind `parallel-core run`, as a shell reads it, for an experiment with
    some options.

    An option without a value (None) is left out; one with a tuple of values is given once for each
    of them.
    """
    return f"{experiment} {option_words(options)}"


def measured_in(output: str) -> Iterator[Result]:
    """Read the results in the lines of a measuring process.

    Skip other ones: a library's, and one that it left unfinished.
    """
    for line in output.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            yield Result.from_json(json.loads(line))


def measure_elsewhere(
    experiment: str, options: Mapping[str, Any], seconds: float | None = None
) -> Result:
    """Run an experiment in a fresh process (see `measuring_command`) and return its result, with
    its problems if any.

    Raises RequestError if the process refuses the request (a framework that is not installed, say)
    and MeasurementError if it fails or takes longer than so many seconds, both with the process's
    reason.
    """
    if seconds is None:
        seconds = max(MAX_RUN_SECONDS, MAX_BUDGETS * (options.get("budget") or 0))
    command = measuring_command(sys.executable, [(experiment, options)])
    try:
        # In this process's group, so that a signal to the group ends both.
        with lifeline() as stdin:
            done = subprocess.run(
                command, stdin=stdin, capture_output=True, text=True, timeout=seconds, check=False
            )
        outcome = Outcome(done.returncode, done.stdout, done.stderr, timed_out=False)
    except subprocess.TimeoutExpired:
        outcome = Outcome(-9, "", "", timed_out=True)
    for result in measured_in(outcome.output):
        return result
    reason = outcome.reason(seconds)
    if outcome.status == REFUSED:
        raise RequestError(reason)
    raise MeasurementError(f"{experiment} in a separate process: {reason}")


def option_words(options: Mapping[str, Any]) -> str:
    """Return options as a shell reads them."""
    return shlex.join(_words(options))


def _words(options: Mapping[str, Any]) -> Iterator[str]:
    for name, values in options.items():
        for value in values if isinstance(values, tuple) else (values,):
            if value is not None:
                yield from (f"--{name}", str(value))
