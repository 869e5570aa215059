"""Every option that an experiment's text names is one: of its command, of `launch`, or of a command that it names."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from parallel_core.command_line.launch import launch
from parallel_core.command_line.run import run
from parallel_core.experiments import EXPERIMENTS

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def texts_of(name: str) -> Iterator[str]:
    """Yield the strings of an experiment's module, or of all files of its folder."""
    path = Path(import_module(EXPERIMENTS[name].program.__module__).__file__ or "")
    for file in path.parent.rglob("*.py") if path.name == "__init__.py" else [path]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_options_that_an_experiment_names_are_there(name: str) -> None:
    command = run.get_command(click.Context(run), name)
    assert command is not None
    known = options_of(command) | options_of(launch)
    assert {option for text in texts_of(name) for option in OPTION.findall(text)} <= known
