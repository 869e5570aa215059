"""`parallel-core measure`, the command of every process that measures for another one."""

import shlex
from contextlib import redirect_stdout
from io import StringIO

import click

from parallel_core.command_line.run import run
from parallel_core.measurement.fresh_process import Measured
from parallel_core.system.errors import MeasurementError


@click.command(hidden=True)
@click.argument("runs", nargs=-1, required=True)
def measure(runs: tuple[str, ...]) -> None:
    """Do RUNS, each the arguments of `run` in one word, and print a line of JSON for each that gives a result.

    A run that fails ends the process as it does by itself; one that gives an invalid result, after all have been done.
    """
    measured: list[Measured] = []
    invalid: MeasurementError | None = None
    for number, words in enumerate(runs, 1):
        try:
            # Nobody reads the tables.
            with redirect_stdout(StringIO()):
                run.main(shlex.split(words), standalone_mode=False, obj=measured)
        except MeasurementError as error:
            if len(measured) < number:
                raise
            invalid = error
        click.echo(measured[-1].as_line())
    if invalid is not None:
        raise invalid
