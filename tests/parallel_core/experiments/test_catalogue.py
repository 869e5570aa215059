"""The catalogue is true: every experiment has a command that takes the options a comparison gives it."""

from dataclasses import replace
from io import StringIO

import click
import pytest
from rich.console import Console

import parallel_core
from parallel_core.command_line.compare import known_experiments
from parallel_core.command_line.run import run
from parallel_core.comparison.time_budget import smallest
from parallel_core.experiments import EXPERIMENTS, Experiment, Mode
from parallel_core.terminal.explanation import show_catalogue
from tests.parallel_core.comparison.made_up import PLAN

ALL = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


@ALL
def test_it_has_a_command_that_takes_a_comparison_s_options(experiment: Experiment) -> None:
    command = run.get_command(click.Context(run), experiment.name)
    assert command is not None
    assert command.help == experiment.question
    known = {option for parameter in command.params for option in parameter.opts}
    for options in experiment.options.values():
        assert {f"--{name}" for name in (*options, *experiment.calibrated)} <= known
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        # Parsed and not run: a value that a command refuses would fail here.
        command.make_context(experiment.name, ["--backend", "numpy", *words])


@ALL
@pytest.mark.parametrize("mode", ["full", "quick"])
def test_its_command_takes_the_options_of_a_sounding(experiment: Experiment, mode: Mode) -> None:
    command = run.get_command(click.Context(run), experiment.name)
    assert command is not None
    options = {**experiment.options[mode], **smallest(experiment, mode)}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    given = command.make_context(experiment.name, ["--backend", "numpy", *words]).params
    assert given.get("rounds", 1) == 1


@ALL
def test_it_can_be_run_from_python(experiment: Experiment) -> None:
    assert callable(getattr(parallel_core, f"run_{experiment.name.replace('-', '_')}"))


@ALL
def test_a_comparison_gives_it_as_many_devices_as_it_needs(experiment: Experiment) -> None:
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
