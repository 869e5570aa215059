"""One experiment, one place: a module in a chapter's package is all that a new one takes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import backends
import parallel_core
from parallel_core.command_line import cli
from parallel_core.command_line.compare import known_experiments
from parallel_core.experiments import EXPERIMENTS, automatic_parallelism

MODULE = '''"""One sum: how long does adding two vectors take?

Book: Dive into Deep Learning, "Automatic Parallelism".

Prediction: A few microseconds.

Method: Two vectors of ones are added.

Look at: `sum_seconds`.

Read: The shorter, the better.
"""

from typing import Annotated

import numpy as np

from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import (Metric)
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work


LENGTH = Parameter("Elements of a vector.", minimum=2)


def program(trial: Trial, length: Annotated[int, LENGTH] = 8) -> None:
    drawn = np.ones(length, dtype=np.float32)
    x = trial.backend.asarray(drawn, trial.devices[0])
    total = Work(lambda: trial.backend.launch(trial.backend.ops.add, x, x))
    trial.time("sum", total)
    trial.check("sums", [total.launch()], [drawn + drawn])


EXPERIMENT = Experiment(
    name="one-sum",
    question="How long does one sum take?",
    position=99,
    program=program,
    case="sum",
    metrics=(Metric("sum_seconds", lambda times: times["sum"]),),
)
'''


@pytest.fixture
def one_module_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay a module that nothing else knows of into a chapter's package."""
    (tmp_path / "one_sum.py").write_text(MODULE)
    monkeypatch.setattr(
        automatic_parallelism, "__path__", [*automatic_parallelism.__path__, str(tmp_path)]
    )


def output_of(*arguments: str) -> str:
    """Return what a command prints, on a single line."""
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.usefixtures("one_module_more")
def test_it_is_listed_behind_its_chapter_s_others() -> None:
    assert "one-sum How long does one sum take? Training on Multiple GPUs" in output_of("list")
    names = list(EXPERIMENTS)
    position = names.index("one-sum")
    assert names[position - 1] == "graph"
    assert names[position + 1] == "data-parallel"


@pytest.mark.usefixtures("one_module_more")
def test_modules_that_are_no_experiments_are_not_in_the_catalogue() -> None:
    for name in ("works", "layered-graphs", "scheduling", "one_sum", "", "overlap.program"):
        assert name not in EXPERIMENTS
    with pytest.raises(AttributeError, match="has no attribute 'run_scheduling'"):
        parallel_core.run_scheduling  # noqa: B018


@pytest.mark.usefixtures("one_module_more")
def test_its_command_has_its_parameters_and_explains_it() -> None:
    help_text = output_of("run", "one-sum", "--help")
    assert "How long does one sum take?" in help_text
    assert "--length INTEGER RANGE Elements of a vector. [default: 8; 2<=x<=1000000]" in help_text
    rounds = "--rounds INTEGER RANGE How often everything is timed, at most."
    assert f"{rounds} [default: 5; 1<=x<=1000000]" in help_text
    refused = CliRunner().invoke(cli, ["run", "one-sum", "--backend", "numpy", "--length", "1"])
    assert refused.exit_code == 2
    assert "Prediction A few microseconds." in output_of("run", "one-sum", "--explain")
    question = parallel_core.explain("one-sum").question
    assert question == "How long does one sum take?"


@pytest.mark.usefixtures("one_module_more")
def test_run_and_compare_know_it() -> None:
    assert "one-sum How long does" in output_of("run", "--help")
    assert "--exchange [after|during] " in output_of("run", "data-parallel", "--help")
    assert known_experiments(("one-sum",), with_exercises=False) == ("one-sum",)


@pytest.mark.usefixtures("one_module_more")
def test_it_runs_from_the_command_line_and_from_python(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--backend", "numpy", "--rounds", "2", "--details", "--json", str(path))
    text = output_of("run", "one-sum", *options)
    assert "sum_seconds" in text
    assert json.loads(path.read_text())["parameters"] == {"length": 8, "rounds": 2, "budget": 15.0}
    assert parallel_core.run_one_sum(backends.load("numpy", 1), length=3).problems == ()
    assert "run_one_sum" in dir(parallel_core)
