"""`parallel-core several`, which `compare` calls where time is short: several runs in one process."""

import json
import shlex
import tempfile
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from time import monotonic

import click

import backends
from parallel_core.command_line.run import run
from parallel_core.errors import MeasurementError

__all__ = ["several"]

LOADED_WITH = ("backend", "devices", "device_kind", "engine", "threads")


@click.command(hidden=True)
@click.argument("runs", nargs=-1, required=True)
def several(runs: tuple[str, ...]) -> None:
    """Do RUNS, each the arguments of `run` in one word, and print a line of JSON for each that gives a result.

    A line holds the result, and when the run began and ended, by the clock that all processes share. The framework is
    loaded before the first one begins. A run that fails ends the process as it does by itself.
    """
    for index, words in enumerate(runs):
        name, *arguments = shlex.split(words)
        command = run.get_command(click.Context(run), name)
        if command is None:
            raise click.UsageError(f"unknown experiment {name!r}")
        with tempfile.TemporaryDirectory(prefix="parallel-core-") as folder:
            path = Path(folder) / "result.json"
            with command.make_context(name, [*arguments, "--json", str(path)]) as context:
                if index == 0:
                    backends.load(*(context.params[one] for one in LOADED_WITH))
                began = monotonic()
                # An invalid result has said so.
                with redirect_stdout(StringIO()), suppress(MeasurementError):
                    command.invoke(context)
            line = {"began": began, "ended": monotonic(), "result": json.loads(path.read_text(encoding="utf-8"))}
        click.echo(json.dumps(line))
