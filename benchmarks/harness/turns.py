"""Fresh processes that live together and take turns, as those of a comparison do."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial

import click

from backends.host import core_numbers
from benchmarks.harness.runs import DEADLINE
from parallel_core.compare.living_processes import Command, live
from parallel_core.measurement.fresh_process import measured_in, worker_command
from parallel_core.measurement.request import Request
from parallel_core.measurement.result import Result


def measured_in_turns(asked: Sequence[Mapping[int, Request]]) -> list[list[Result]]:
    """Measure what each process is asked for, and return the results of each.

    Requests have ascending numbers: those of one number are measured side by side.
    """
    commands = []
    for requests in asked:
        steps = [*requests]
        first_line = requests[steps[0]].as_line()
        commands.append(
            Command(partial(worker_command, sys.executable), first_line, steps, DEADLINE)
        )

    def ask(process: int, step: int) -> str:
        return asked[process][step].as_line()

    processes = asyncio.run(live(commands, set(core_numbers()), ask, lambda _: None))
    measured = []
    for requests, process in zip(asked, processes, strict=True):
        results = list(measured_in(process.output))
        if process.outcome is not None and len(results) < len(requests):
            raise click.ClickException(process.outcome.reason(DEADLINE))
        measured.append(results)
    return measured
