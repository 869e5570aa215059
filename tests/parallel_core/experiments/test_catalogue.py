"""The catalogue is true, and `--explain` says of every experiment what is asked, how, and how to
read it.

One experiment, one place: a module in a chapter's package is all that a new one takes.
"""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import backends
import parallel_core
from backends.registry.variants import all_variants, found_on, in_words
from parallel_core import RequestError, explain
from parallel_core.command_line import cli
from parallel_core.command_line import run as command
from parallel_core.command_line.compare import known_experiments
from parallel_core.command_line.launch import launch
from parallel_core.experiments import EXPERIMENTS, Experiment, automatic_parallelism
from parallel_core.experiments.asynchronous_computation import increments
from parallel_core.experiments.automatic_parallelism import overlap
from parallel_core.experiments.explanation import HEADINGS, explanation
from parallel_core.experiments.runner.declaration import OF_COPIES
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.explanation import Chosen, show_catalogue
from parallel_core.terminal.result import show_again
from tests.parallel_core.comparison.made_up import PLAN
from tests.parallel_core.experiments.small import small
from tests.parallel_core.terminal.printed import printed

ALL = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


def command_of(experiment: Experiment) -> click.Command:
    found = command.run.get_command(click.Context(command.run), experiment.name)
    assert found is not None
    return found


def options_of(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


@ALL
def test_its_command_takes_the_options_of_a_comparison(
    experiment: Experiment,
) -> None:
    command = command_of(experiment)
    assert command.help == experiment.question
    for options in experiment.options.values():
        assert {f"--{name}" for name in (*options, *experiment.calibrated)} <= options_of(command)
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        # Parsed and not run: a value that a command refuses would fail here.
        command.make_context(experiment.name, ["--backend", "numpy", *words])


@pytest.mark.parametrize(
    "name", [name for name, experiment in EXPERIMENTS.items() if experiment.calibrated]
)
def test_the_command_that_repeats_a_run_has_its_sizes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "SIDE", 8)
    # On one device small-ops needs no other process.
    backend = backends.load("numpy", 1 if name == "small-ops" else 2, threads_per_device=1)
    experiment, options = EXPERIMENTS[name], small(name)
    result = experiment.run(backend, **options)
    again, *_ = printed(show_again, result, {"backend": "numpy"}).strip().splitlines()
    _, _, _, _, *words = shlex.split(again)
    parsed = command_of(experiment).make_context(name, words).params
    assert {one: parsed[one] for one in experiment.calibrated} == {
        one: options[one] for one in experiment.calibrated
    }


def texts_of(experiment: Experiment) -> Iterator[str]:
    """Yield the strings of an experiment's module, or of all files of its folder."""
    path = Path(import_module(experiment.program.__module__).__file__ or "")
    for file in path.parent.rglob("*.py") if path.name == "__init__.py" else [path]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@ALL
def test_an_option_that_its_text_names_is_one_of_its_command_or_of_launch(
    experiment: Experiment,
) -> None:
    named = {
        option
        for text in texts_of(experiment)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
    }
    assert named <= options_of(command_of(experiment)) | options_of(launch)


@ALL
def test_python_can_run_it_and_a_comparison_gives_it_the_devices_that_it_needs(
    experiment: Experiment,
) -> None:
    assert callable(getattr(parallel_core, f"run_{experiment.name.replace('-', '_')}"))
    plan = replace(PLAN, experiments=(experiment,), devices=1)
    words = plan.command(plan.cells[:1], {}, turn=1)[-1].split()
    assert int(words[words.index("--devices") + 1]) >= experiment.devices


def test_a_comparison_is_of_the_demonstrations_unless_asked_for_more() -> None:
    assert known_experiments((), with_exercises=False) == (
        "async",
        "parallel",
        "overlap",
        "data-parallel",
    )
    assert known_experiments((), with_exercises=True) == tuple(EXPERIMENTS)
    assert known_experiments(("overlap", "async", "overlap"), with_exercises=False) == (
        "overlap",
        "async",
    )
    with pytest.raises(click.UsageError, match="--all names every experiment already"):
        known_experiments(("overlap",), with_exercises=True)


@pytest.mark.parametrize("width", [80, 60])
def test_the_listing_fits_a_terminal_and_loses_nothing(width: int) -> None:
    console = terminal_console(width=width, file=StringIO())
    show_catalogue(EXPERIMENTS.values(), ("numpy",), console)
    assert isinstance(console.file, StringIO)
    printed = console.file.getvalue()
    lines, words = printed.splitlines(), set(printed.split())
    assert max(map(len, lines)) <= width
    for experiment in EXPERIMENTS.values():
        assert any(line.split()[:1] == [experiment.name] for line in lines)
        assert set(experiment.summary.split()) <= words
        assert {*experiment.contains} <= words
        assert {str(exercise.number) for exercise in experiment.exercises} <= set(
            printed.replace(",", " ").split()
        )


def told_by(experiment: str, *options: str) -> str:
    done = CliRunner().invoke(
        cli, ["run", experiment, "--explain", *options], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.output


@ALL
def test_it_explains_all_parts_and_the_command_prints_them_without_a_backend(
    experiment: Experiment,
) -> None:
    told, printed = explanation(experiment), told_by(experiment.name)
    assert told.question.endswith("?")
    assert told.question.split()[-1] in printed
    assert tuple(heading for heading, _ in told.parts) == HEADINGS
    assert [heading for heading in HEADINGS if f"\n{heading}\n" not in printed] == []
    titles = [exercise.title for exercise in experiment.exercises] or [experiment.remark]
    assert [
        part for part in (experiment.chapter, *titles) if part not in dict(told.parts)["Book"][0]
    ] == []
    assert set(experiment.settings or ()) <= {variant.setting for variant in all_variants()}


BOTH = ("--backend", "mxnet,torch")


def test_the_command_lists_the_variants_behind_the_parts() -> None:
    on_cpus, on_gpus = (
        told_by("data-parallel", *BOTH, "--device-kind", kind).split("\nVariants")[1]
        for kind in ("cpu", "gpu")
    )
    for variant in all_variants():
        for kind, told in (("cpu", on_cpus), ("gpu", on_gpus)):
            there = any(kind in found_on(variant.name).get(name, ()) for name in ("mxnet", "torch"))
            assert (f"  {variant.name} ({in_words(variant.name)[0]}" in told) == there
            assert (variant.meaning in " ".join(told.split())) == there
    for one in (
        "bulk-off (mxnet, the default)",
        "bulk-on (mxnet)",
        "copy-on-compute-queue (mxnet on CPUs and torch)",
    ):
        assert one in on_cpus
    assert "4 more on GPUs (--explain --device-kind gpu)." in " ".join(on_cpus.split())


@pytest.mark.parametrize(
    ("experiment", "options", "listed", "more"),
    [
        (
            "overlap",
            ("--backend", "torch"),
            ["copy-on-own-queue", "copy-on-compute-queue"],
            "2 more of mxnet",
        ),
        ("cost-model", BOTH, [], f"{len(all_variants())} more in experiments that train"),
        ("overlap", ("--backend", "numpy"), [], "--explain --backend mxnet"),
        (
            "parallel",
            ("--backend", "mxnet", "--engine", "sync"),
            ["blas-for-processor", "blas-as-shipped"],
            "in exp",
        ),
        ("overlap", ("--backend", "torch", "--engine", "sync"), [], "2 more on the other engine"),
    ],
)
def test_variants_that_apply_are_listed(
    experiment: str, options: tuple[str, ...], listed: list[str], more: str
) -> None:
    told = told_by(experiment, *options, "--device-kind", "cpu").split("\nVariants")[1]
    assert [
        line.split()[0] for line in told.splitlines() if line.startswith("  ") and line[2] != " "
    ] == listed
    assert ("none applies here" in told) == (not listed)
    elsewhere = " ".join(told.split()).partition("Elsewhere: ")[2]
    assert more in elsewhere
    assert len(listed) + sum(int(count) for count in re.findall(r"(\d+) more", elsewhere)) == len(
        all_variants()
    )


def test_without_options_it_is_what_is_installed_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "backends.installation.frameworks.find_spec", lambda name: name == "torch" or None
    )
    monkeypatch.setattr(command, "ask_driver", tuple)
    assert command.chosen_for(EXPERIMENTS["overlap"], {}) == Chosen(OF_COPIES, ("torch",), ("cpu",))
    # A driver that does not answer gives no GPU.
    for answer, kinds in ((("a card",), ("cpu", "gpu")), ("broken", ("cpu",))):
        monkeypatch.setattr(command, "ask_driver", lambda answer=answer: answer)
        assert command.chosen_for(EXPERIMENTS["graph"], {}).kinds == kinds


@pytest.mark.parametrize(
    ("option", "known"), [("backend", "numpy"), ("device-kind", "auto, cpu"), ("engine", "async")]
)
def test_what_is_not_known_is_refused(option: str, known: str) -> None:
    with pytest.raises(
        RequestError, match=rf"^unknown {option.replace('-', ' ')} 'nmupy'.*{known}"
    ):
        told_by("overlap", f"--{option}", "nmupy")


def test_a_docstring_has_all_headings_and_paragraphs_belong_to_the_one_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlap, "__doc__", "Overlap?\n\nMethod: none.\n\nBook: none.")
    with pytest.raises(ValueError, match=r"overlap explains Method, Book, and not Book"):
        explanation(EXPERIMENTS["overlap"])
    parts = "\n\n".join(f"{heading}: of {heading}." for heading in HEADINGS)
    monkeypatch.setattr(overlap, "__doc__", f"Overlap?\n\n{parts}\n\nAnd: more\nof it.")
    assert dict(explanation(EXPERIMENTS["overlap"]).parts)["Read"] == (
        "of Read.",
        "And: more of it.",
    )


def test_a_notebook_asks_by_name_and_gets_paragraphs() -> None:
    markdown = explain("overlap")._repr_markdown_()
    assert markdown.startswith("**Overlap: can results travel")
    assert [line for line in markdown.split("\n\n") if line.startswith("**")][1:] == [
        f"**{heading}.** {texts[0]}" for heading, texts in explain("overlap").parts
    ]
    with pytest.raises(RequestError, match=r"unknown experiment 'overlaps': did you mean overlap"):
        explain("overlaps")


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
from parallel_core.experiments.runner.trial import Trial, Work


LENGTH = Parameter("Elements of a vector.", minimum=2)


def program(trial: Trial, length: Annotated[int, LENGTH] = 8) -> None:
    drawn = np.ones(length, dtype=np.float32)
    x = trial.backend.asarray(drawn, trial.devices[0])
    total = Work(lambda: trial.backend.launch(trial.backend.ops.add, x, x))
    trial.time("sum", total)
    trial.check("sums", [total.launch()], [drawn + drawn])


EXPERIMENT = Experiment(
    name="one-sum",
    summary="How long does one sum take?",
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
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.usefixtures("one_module_more")
def test_it_is_listed_behind_its_chapter_s_others() -> None:
    assert "one-sum How long does one sum take? Training on Multiple GPUs" in output_of("list")
    names = list(EXPERIMENTS)
    assert names[names.index("one-sum") - 1 :][:3:2] == ["graph", "data-parallel"]
    for name in ("workloads", "layered-graphs", "scheduling", "one_sum", "", "overlap.program"):
        assert name not in EXPERIMENTS
    with pytest.raises(AttributeError, match="has no attribute 'run_scheduling'"):
        parallel_core.run_scheduling  # noqa: B018


@pytest.mark.usefixtures("one_module_more")
def test_its_command_has_its_parameters_and_explains_it() -> None:
    told = output_of("run", "one-sum", "--help")
    assert "How long does adding two vectors take?" in told
    assert "--length INTEGER RANGE Elements of a vector. [default: 8; 2<=x<=1000000]" in told
    assert (
        "--rounds INTEGER RANGE How often everything is timed, at most. [default: 5; 1<=x<=1000000]"
        in told
    )
    assert "one-sum How long does" in output_of("run", "--help")
    assert "--of [mlp|xy] " in output_of("run", "graph", "--help")
    refused = CliRunner().invoke(cli, ["run", "one-sum", "--backend", "numpy", "--length", "1"])
    assert refused.exit_code == 2
    assert "Prediction A few microseconds." in output_of("run", "one-sum", "--explain")
    assert (
        parallel_core.explain("one-sum").question
        == "One sum: how long does adding two vectors take?"
    )
    # A comparison knows it.
    assert known_experiments(("one-sum",), with_exercises=False) == ("one-sum",)


@pytest.mark.usefixtures("one_module_more")
def test_it_runs_from_the_command_line_and_from_python(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    shown = output_of("run", "one-sum", "--backend", "numpy", "--rounds", "2", "--json", str(path))
    assert "sum_seconds" in shown
    assert json.loads(path.read_text())["parameters"] == {"length": 8, "rounds": 2, "budget": 15.0}
    assert parallel_core.run_one_sum(backends.load("numpy", 1), length=3).problems == ()
    assert "run_one_sum" in dir(parallel_core)
