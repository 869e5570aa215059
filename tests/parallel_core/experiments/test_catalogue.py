"""The catalogue is true, and `--explain` says of every experiment what is asked, how, and how to
read it.
"""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import backends
import parallel_core
from backends.registry.variants import all_variants, found_on
from parallel_core import RequestError, explain
from parallel_core.command_line import cli
from parallel_core.command_line import run as command
from parallel_core.command_line.compare import known_experiments
from parallel_core.command_line.launch import launch
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.automatic_parallelism import overlap
from parallel_core.experiments.explanation import HEADINGS, explanation
from parallel_core.experiments.runner.declaration import OF_COPIES
from parallel_core.measurement.request import Work
from parallel_core.run.options import command_again
from parallel_core.terminal.explanation import Chosen, show_catalogue
from tests.parallel_core.compare.made_up import PLAN
from tests.parallel_core.experiments.small import small
from tests.parallel_core.terminal.printed import printed

ALL = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


def command_of(experiment: Experiment) -> click.Command:
    """Return the command that runs an experiment."""
    experiment_command = command.run.get_command(click.Context(command.run), experiment.name)
    assert experiment_command is not None
    return experiment_command


def options_of(command: click.Command) -> set[str]:
    """Return the options that a command takes, such as `--size`."""
    options: set[str] = set()
    for parameter in command.params:
        options.update(parameter.opts, parameter.secondary_opts)
    return options


def as_words(options: Mapping[str, object]) -> list[str]:
    """Return options as the words of a command line."""
    words = []
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


@ALL
def test_its_command_takes_the_options_of_a_comparison(
    experiment: Experiment,
) -> None:
    command = command_of(experiment)
    assert command.help == experiment.question
    for options in experiment.options.values():
        names = {f"--{name}" for name in (*options, *experiment.calibrated)}
        assert names <= options_of(command)
        # A value that the command refuses would fail here.
        words = ["--backend", "numpy", *as_words(options)]
        command.make_context(experiment.name, words)


@pytest.mark.parametrize(
    "name", [name for name, experiment in EXPERIMENTS.items() if experiment.calibrated]
)
def test_the_command_that_repeats_a_run_has_its_sizes(name: str) -> None:
    # On one device small-ops needs no other process.
    backend = backends.load("numpy", 1 if name == "small-ops" else 2, threads_per_device=1)
    experiment, options = EXPERIMENTS[name], small(name)
    result = experiment.run(backend, **options)
    # Such as "parallel-core run overlap --backend numpy".
    again = command_again(Work(experiment=name, backend="numpy"), result)
    _program, _run, _experiment, *words = shlex.split(again)
    parsed = command_of(experiment).make_context(name, words).params
    assert {size: options[size] for size in experiment.calibrated}.items() <= parsed.items()


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
    known_options = options_of(command_of(experiment)) | options_of(launch)
    for text in texts_of(experiment):
        named_options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
        assert set(named_options) <= known_options


@ALL
def test_python_can_run_it_and_a_comparison_gives_it_the_devices_that_it_needs(
    experiment: Experiment,
) -> None:
    assert callable(getattr(parallel_core, f"run_{experiment.name.replace('-', '_')}"))
    plan = replace(PLAN, experiments=(experiment,), devices=1)
    devices = plan.request(plan.cells[0], {}, turn=1).work.devices
    assert isinstance(devices, int)
    assert devices >= experiment.devices


def test_a_comparison_is_of_the_demonstrations_unless_asked_for_more() -> None:
    demonstrations = known_experiments((), with_exercises=False)
    assert demonstrations == ("async", "parallel", "overlap", "data-parallel")
    assert known_experiments((), with_exercises=True) == tuple(EXPERIMENTS)
    named = known_experiments(("overlap", "async", "overlap"), with_exercises=False)
    assert named == ("overlap", "async")
    with pytest.raises(click.UsageError, match="--all names every experiment already"):
        known_experiments(("overlap",), with_exercises=True)


@pytest.mark.parametrize("width", [80, 60])
def test_the_listing_fits_a_terminal_and_loses_nothing(width: int) -> None:
    listing = printed(show_catalogue, EXPERIMENTS.values(), ("numpy",), width=width)
    words = set(listing.replace(",", " ").split())
    assert all(len(line) <= width for line in listing.splitlines())
    for experiment in EXPERIMENTS.values():
        numbers = [str(exercise.number) for exercise in experiment.exercises]
        question = experiment.question.replace(",", " ").split()
        assert {experiment.name, *question, *experiment.contains, *numbers} <= words


def explained(experiment: str, *options: str) -> str:
    """Return what `run EXPERIMENT --explain` prints."""
    arguments = ["run", experiment, "--explain", *options]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@ALL
def test_it_explains_all_parts_and_the_command_prints_them_without_a_backend(
    experiment: Experiment,
) -> None:
    parts, text = explanation(experiment), explained(experiment.name)
    assert parts.question.endswith("?")
    assert parts.question.split()[-1] in text
    assert tuple(heading for heading, _ in parts.parts) == HEADINGS
    for heading in HEADINGS:
        assert f"\n{heading}\n" in text
    first_of_book = dict(parts.parts)["Book"][0]
    assert experiment.chapter in first_of_book
    titles = [exercise.title for exercise in experiment.exercises] or [experiment.remark]
    assert all(title in first_of_book for title in titles)
    settings = {variant.setting for variant in all_variants()}
    assert set(experiment.settings or ()) <= settings


BOTH = ("--backend", "mxnet,torch")
ON_GPUS = [
    variant.name
    for variant in all_variants()
    if "gpu" in set().union(*found_on(variant.name).values())
]


@pytest.mark.parametrize(
    ("experiment", "options", "listed", "elsewhere"),
    [
        (
            "overlap",
            ("--backend", "torch"),
            ["copy-on-own-queue", "copy-on-compute-queue"],
            "2 more of mxnet",
        ),
        ("data-parallel", (*BOTH, "--device-kind", "gpu"), ON_GPUS, "more on CPUs"),
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
    experiment: str, options: tuple[str, ...], listed: list[str], elsewhere: str
) -> None:
    text = explained(experiment, "--device-kind", "cpu", *options).partition("\nVariants")[2]
    # A variant's line is indented by two spaces, and its meaning by more.
    names = re.findall(r"^  (\S+)", text, re.MULTILINE)
    assert names == listed
    assert ("none applies here" in text) == (not listed)
    about_others = " ".join(text.split()).partition("Elsewhere: ")[2]
    assert elsewhere in about_others
    counted_elsewhere = sum(int(count) for count in re.findall(r"(\d+) more", about_others))
    assert len(listed) + counted_elsewhere == len(all_variants())


def test_an_unknown_backend_is_refused_before_anything_is_explained() -> None:
    refused = CliRunner().invoke(cli, ["run", "overlap", "--explain", "--backend", "nmupy"])
    assert str(refused.exception) == "unknown backend 'nmupy': did you mean numpy?"
    assert refused.output == ""


def test_without_options_variants_are_of_the_frameworks_that_are_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "backends.installation.frameworks.find_spec", lambda name: name == "torch" or None
    )
    monkeypatch.setattr(command, "ask_driver", tuple)
    assert command.chosen_for(EXPERIMENTS["overlap"], {}) == Chosen(OF_COPIES, ("torch",), ("cpu",))


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (("a card",), ("cpu", "gpu")),
        # A driver that does not answer gives no GPU.
        ("broken", ("cpu",)),
    ],
)
def test_without_options_variants_are_of_the_devices_that_are_there(
    monkeypatch: pytest.MonkeyPatch, answer: object, kinds: tuple[str, ...]
) -> None:
    monkeypatch.setattr(command, "ask_driver", lambda: answer)
    assert command.chosen_for(EXPERIMENTS["graph"], {}).kinds == kinds


def test_a_docstring_without_a_heading_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "__doc__", "Overlap?\n\nMethod: none.\n\nBook: none.")
    with pytest.raises(ValueError, match=r"overlap explains Method, Book, and not Book"):
        explanation(EXPERIMENTS["overlap"])


def test_paragraphs_belong_to_the_heading_above(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = "\n\n".join(f"{heading}: of {heading}." for heading in HEADINGS)
    monkeypatch.setattr(overlap, "__doc__", f"Overlap?\n\n{parts}\n\nAnd: more\nof it.")
    paragraphs = dict(explanation(EXPERIMENTS["overlap"]).parts)
    assert paragraphs["Read"] == ("of Read.", "And: more of it.")


def test_a_notebook_asks_by_name_and_gets_paragraphs() -> None:
    explained_overlap = explain("overlap")
    title, *parts = [
        paragraph
        for paragraph in explained_overlap._repr_markdown_().split("\n\n")
        if paragraph.startswith("**")
    ]
    assert title == f"**{EXPERIMENTS['overlap'].question}**"
    assert parts == [f"**{heading}.** {texts[0]}" for heading, texts in explained_overlap.parts]
    with pytest.raises(RequestError, match=r"unknown experiment 'overlaps': did you mean overlap"):
        explain("overlaps")
