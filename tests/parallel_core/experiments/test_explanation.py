"""`--explain`: every experiment says what is asked, how it is measured and how to read it, and runs nothing."""

import re

import pytest
from click.testing import CliRunner

from backends.registry.variants import all_variants, found_on, in_words
from parallel_core import RequestError, explain
from parallel_core.command_line import cli
from parallel_core.command_line import run as command
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.automatic_parallelism import overlap
from parallel_core.experiments.explanation import HEADINGS, explanation
from parallel_core.experiments.runner.declaration import OF_COPIES
from parallel_core.terminal.explanation import Chosen


def told_by(experiment: str, *options: str) -> str:
    done = CliRunner().invoke(cli, ["run", experiment, "--explain", *options])
    assert done.exit_code == 0, done.output
    return done.output


def variants_of(experiment: str, *options: str) -> str:
    """Return what --explain says of variants."""
    return told_by(experiment, *options).split("\nVariants")[1]


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_explains_all_parts_and_the_command_prints_them_without_a_backend(
    experiment: Experiment,
) -> None:
    told, printed = explanation(experiment), told_by(experiment.name)
    assert told.question.endswith("?")
    assert told.question.split()[-1] in printed
    assert tuple(heading for heading, _ in told.parts) == HEADINGS
    assert [heading for heading in HEADINGS if f"\n{heading}\n" not in printed] == []
    titles = [exercise.title for exercise in experiment.exercises] or [experiment.remark]
    assert [part for part in (experiment.chapter, *titles) if part not in dict(told.parts)["Book"][0]] == []
    assert set(experiment.settings or ()) <= {variant.setting for variant in all_variants()}


BOTH = ("--backend", "mxnet,torch")


def test_the_command_lists_the_variants_behind_the_parts() -> None:
    on_cpus, on_gpus = (variants_of("data-parallel", *BOTH, "--device-kind", kind) for kind in ("cpu", "gpu"))
    for variant in all_variants():
        for kind, told in (("cpu", on_cpus), ("gpu", on_gpus)):
            there = any(kind in found_on(variant.name).get(name, ()) for name in ("mxnet", "torch"))
            assert (f"  {variant.name} ({in_words(variant.name)[0]}" in told) == there
            assert (variant.meaning in " ".join(told.split())) == there
    assert [f"bulk-{one}" for one in ("off (mxnet, the default)", "on (mxnet)")] == [
        line.strip() for line in on_cpus.splitlines() if line.startswith("  bulk")
    ]
    assert "temporary-space-low (mxnet on CPUs)" in on_cpus
    assert "copy-on-compute-queue (mxnet on CPUs and torch)" in on_cpus
    assert "4 more on GPUs (--explain --device-kind gpu)." in " ".join(on_cpus.split())


@pytest.mark.parametrize(
    ("experiment", "options", "listed", "more"),
    [
        ("overlap", ("--backend", "torch"), ["copy-on-own-queue", "copy-on-compute-queue"], "2 more of mxnet"),
        ("cost-model", BOTH, [], f"{len(all_variants())} more in experiments that train"),
        ("overlap", ("--backend", "numpy"), [], "--explain --backend mxnet"),
        ("parallel", ("--backend", "mxnet", "--engine", "sync"), ["blas-for-processor", "blas-as-shipped"], "in exp"),
        ("overlap", ("--backend", "torch", "--engine", "sync"), [], "2 more on the other engine"),
    ],
)
def test_only_variants_that_apply_are_listed_and_the_others_counted(
    experiment: str, options: tuple[str, ...], listed: list[str], more: str
) -> None:
    told = variants_of(experiment, *options, "--device-kind", "cpu")
    assert [line.split()[0] for line in told.splitlines() if line.startswith("  ") and line[2] != " "] == listed
    assert ("none applies here" in told) == (not listed)
    elsewhere = " ".join(told.split()).partition("Elsewhere: ")[2]
    assert more in elsewhere
    assert len(listed) + sum(int(count) for count in re.findall(r"(\d+) more", elsewhere)) == len(all_variants())


def test_without_options_it_is_what_is_installed_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.installation.frameworks.find_spec", lambda name: name == "torch" or None)
    monkeypatch.setattr(command, "ask_driver", tuple)
    assert command.chosen_for(EXPERIMENTS["overlap"], {}) == Chosen(OF_COPIES, ("torch",), ("cpu",))
    monkeypatch.setattr(command, "ask_driver", lambda: ("a card",))
    assert command.chosen_for(EXPERIMENTS["graph"], {}).kinds == ("cpu", "gpu")
    # A driver that does not answer gives no GPU.
    monkeypatch.setattr(command, "ask_driver", lambda: "broken")
    assert command.chosen_for(EXPERIMENTS["graph"], {}).kinds == ("cpu",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backend", "nmupy"), r"^unknown backend 'nmupy': did you mean numpy"),
        (("--device-kind", "tpu"), r"^unknown device kind 'tpu' \(known: auto, cpu, gpu\)$"),
        (("--engine", "lazy"), r"^unknown engine 'lazy' \(known: async, sync\)$"),
    ],
)
def test_what_is_not_known_is_refused_in_a_line(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        CliRunner().invoke(cli, ["run", "overlap", "--explain", *options], catch_exceptions=False)


def test_a_docstring_of_another_form_is_an_error_and_a_paragraph_without_a_heading_belongs_to_the_part_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlap, "__doc__", "Overlap?\n\nMethod: none.\n\nBook: none.")
    with pytest.raises(ValueError, match=r"overlap explains Method, Book, and not Book"):
        explanation(EXPERIMENTS["overlap"])
    parts = "\n\n".join(f"{heading}: of {heading}." for heading in HEADINGS)
    monkeypatch.setattr(overlap, "__doc__", f"Overlap?\n\n{parts}\n\nAnd: more\nof it.")
    assert dict(explanation(EXPERIMENTS["overlap"]).parts)["Read"] == ("of Read.", "And: more of it.")


def test_a_notebook_asks_by_name_and_gets_paragraphs() -> None:
    markdown = explain("overlap")._repr_markdown_()
    assert markdown.startswith("**Overlap: can results travel")
    assert [line for line in markdown.split("\n\n") if line.startswith("**")][1:] == [
        f"**{heading}.** {texts[0]}" for heading, texts in explain("overlap").parts
    ]
    with pytest.raises(RequestError, match=r"unknown experiment 'overlaps': did you mean overlap"):
        explain("overlaps")
