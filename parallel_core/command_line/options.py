"""Options that several commands share, and the types of their values."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from parallel_core.measurement.request import Words, Work
from parallel_core.run.options import option_of
from parallel_core.run.values import DEVICES as DEVICES
from parallel_core.run.values import MOST_DEVICES as MOST_DEVICES
from parallel_core.run.values import NUMBER as NUMBER
from parallel_core.run.values import PATH as PATH
from parallel_core.run.values import POSITIVE as POSITIVE
from parallel_core.run.values import PROCESSES as PROCESSES
from parallel_core.run.values import Parsed as Parsed
from parallel_core.run.values import names as names
from parallel_core.run.values import number as number
from parallel_core.system.files import STANDARD_OUTPUT
from parallel_core.terminal.console import terminal_console

Command = TypeVar("Command", bound=Callable[..., Any])


def _interpreter(text: str) -> tuple[str, str]:
    """Read NAME=PATH: a backend, and the Python that runs it; raises ValueError for other texts."""
    backend, _, program = text.partition("=")
    if not backend or not program:
        raise ValueError(f"{text!r} is not of the form NAME=PATH, torch=/opt/new/bin/python say")
    path = shutil.which(program)
    if path is None:
        raise ValueError(f"{program!r} is not a program that can be run")
    return backend, path


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Make an option whose default the help shows."""
    return click.option(*names, **{"show_default": True, **settings})


def path(
    name: str, parameter: str, text: str, metavar: str = "FILE"
) -> Callable[[Command], Command]:
    """Make an option that takes a path, None unless it is given."""
    return click.option(name, parameter, type=PATH, metavar=metavar, help=text)


def console_beside(*outputs: Path | None) -> Console:
    """Return the console for people: on standard error, if an output goes to standard output."""
    is_taken = STANDARD_OUTPUT in outputs or Path("/dev/stdout") in outputs
    return terminal_console(stderr=is_taken)


interpreters = click.option(
    "--python",
    "interpreters",
    type=Parsed(_interpreter, "name=path"),
    multiple=True,
    help="The Python that runs a backend. Default: this one, or that of an environment that make "
    "made for it.",
)
"""The option of commands that run several backends."""
engine, device_kind, threads, workers, variant = map(
    partial(option_of, Work), ("engine", "device_kind", "threads", "workers", "variant")
)
details = option_of(Words, "details")
"""Options of `run` that other commands have too."""
json_file = path("--json", "json_path", "The results as JSON; - for standard output.")
