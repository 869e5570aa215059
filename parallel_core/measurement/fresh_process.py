"""Measure in a separate process: a framework reads its threads, workers and engine once, at import.

All such processes run `parallel_core.run.worker`, which reads requests and prints results, a line
of JSON for each. It ends as soon as a pipe on its standard input does: the process that started it
is gone then.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from parallel_core.measurement.request import Request
from parallel_core.measurement.result import Result
from parallel_core.measurement.starter import NOTHING_MORE
from parallel_core.system.errors import REFUSED, MeasurementError, RequestError
from parallel_core.system.subprocesses import Outcome

MAX_RUN_SECONDS, MAX_BUDGETS = 300.0, 5
"""Seconds that the process may take unless another number is given, or as many times its budget if
that is more.
"""


def worker_command(python: str, ended_on: int | None = None) -> list[str]:
    """Return the command of a process that measures what it is asked for.

    It takes turns with others if there is a descriptor on which it is to end its turns.
    """
    # -P: the current folder may hold another checkout than the installed one.
    command = [python, "-P", "-m", "parallel_core.run.worker"]
    return command if ended_on is None else [*command, str(ended_on)]


@contextmanager
def asking(requests: Iterable[Request]) -> Iterator[int]:
    """Yield a descriptor for a worker's standard input, from which it reads some requests.

    The worker ends with this context, or with this process, whatever it is doing.
    """
    reading, writing = os.pipe()
    try:
        lines = [*map(Request.as_line, requests), NOTHING_MORE]
        os.write(writing, "".join(f"{line}\n" for line in lines).encode())
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def measured_in(output: str) -> Iterator[Result]:
    """Read the results in the lines of a worker.

    Skip other ones: a library's, and one that it left unfinished.
    """
    for line in output.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            yield Result.from_json(json.loads(line))


def measure_elsewhere(
    experiment: str, options: Mapping[str, Any], seconds: float | None = None
) -> Result:
    """Run an experiment with options in a fresh process, and return its result, with its problems
    if any (see `Request.of`).

    Raises RequestError if the process refuses the request (a framework that is not installed, say)
    and MeasurementError if it fails or takes longer than so many seconds, both with the process's
    reason.
    """
    if seconds is None:
        seconds = max(MAX_RUN_SECONDS, MAX_BUDGETS * (options.get("budget") or 0))
    command = worker_command(sys.executable)
    try:
        # In this process's group, so that a signal to the group ends both.
        with asking([Request.of(experiment, options)]) as stdin:
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
