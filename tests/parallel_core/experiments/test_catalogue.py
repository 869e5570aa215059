"""The catalogue is true: every experiment has a command with the options that a comparison and its text name."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path

import click
import pytest
from rich.console import Console

import parallel_core
from parallel_core.command_line.compare import known_experiments
from parallel_core.command_line.launch import launch
from parallel_core.command_line.run import run
from parallel_core.comparison.time_budget import smallest
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.terminal.explanation import show_catalogue
from tests.parallel_core.comparison.made_up import PLAN

ALL = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@ALL
def test_its_command_takes_the_options_of_a_comparison_and_of_its_sounding(experiment: Experiment) -> None:
    command = run.get_command(click.Context(run), experiment.name)
    assert command is not None
    assert command.help == experiment.question
    for mode, options in experiment.options.items():
        assert {f"--{name}" for name in (*options, *experiment.calibrated)} <= options_of(command)
        for given in (options, {**options, **smallest(experiment, mode)}):
            words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
            # Parsed and not run: a value that a command refuses would fail here.
            parsed = command.make_context(experiment.name, ["--backend", "numpy", *words]).params
            assert given is options or parsed.get("rounds", 1) == 1


def texts_of(experiment: Experiment) -> Iterator[str]:
    """Yield the strings of an experiment's module, or of all files of its folder."""
    path = Path(import_module(experiment.program.__module__).__file__ or "")
    for file in path.parent.rglob("*.py") if path.name == "__init__.py" else [path]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@ALL
def test_an_option_that_its_text_names_is_one_of_its_command_or_of_launch(experiment: Experiment) -> None:
    command = run.get_command(click.Context(run), experiment.name)
    assert command is not None
    named = {option for text in texts_of(experiment) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}
    assert named <= options_of(command) | options_of(launch)


@ALL
def test_it_can_be_run_from_python_and_a_comparison_gives_it_as_many_devices_as_it_needs(
    experiment: Experiment,
) -> None:
    assert callable(getattr(parallel_core, f"run_{experiment.name.replace('-', '_')}"))
    plan = replace(PLAN, experiments=(experiment,), devices=1)
    words = plan.command(plan.cells[:1], {}, turn=1)[-1].split()
    assert int(words[words.index("--devices") + 1]) >= experiment.devices


def test_a_comparison_is_of_the_demonstrations_unless_asked_for_more() -> None:
    assert known_experiments((), with_exercises=False) == ("async", "parallel", "overlap", "data-parallel")
    assert known_experiments((), with_exercises=True) == tuple(EXPERIMENTS)
    assert known_experiments(("overlap", "async", "overlap"), with_exercises=False) == ("overlap", "async")
    with pytest.raises(click.UsageError, match="--all names every experiment already"):
        known_experiments(("overlap",), with_exercises=True)


@pytest.mark.parametrize(
    ("chapter", "asked"),
    [
        ("Asynchronous Computation", ["1 MXNet", "2 MXNet", "1 PyTorch"]),
        ("Automatic Parallelism", ["1", "2", "3", "4", "5"]),
        ("Training on Multiple GPUs", ["1", "2", "3", "4"]),
    ],
)
def test_every_exercise_of_the_chapters_has_an_experiment(chapter: str, asked: list[str]) -> None:
    declared = [
        one for experiment in EXPERIMENTS.values() if experiment.chapter == chapter for one in experiment.exercises
    ]
    assert sorted(f"{one.number} {one.edition}".rstrip() for one in declared) == sorted(asked)


@pytest.mark.parametrize("width", [80, 60])
def test_the_listing_fits_a_terminal_and_loses_nothing(width: int) -> None:
    console = Console(width=width, file=StringIO())
    show_catalogue(EXPERIMENTS.values(), ("numpy",), console)
    assert isinstance(console.file, StringIO)
    printed = console.file.getvalue()
    lines = printed.splitlines()
    assert max(map(len, lines)) <= width
    words = set(printed.split())
    for experiment in EXPERIMENTS.values():
        assert any(line.split()[:1] == [experiment.name] for line in lines)
        assert set(experiment.summary.split()) <= words
        assert {str(exercise.number) for exercise in experiment.exercises} <= set(printed.replace(",", " ").split())
