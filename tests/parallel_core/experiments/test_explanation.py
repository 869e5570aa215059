"""`--explain`: every experiment says what is asked, how it is measured and how to read it, and runs nothing."""

import pytest
from click.testing import CliRunner

from backends.variants import VARIANTS
from parallel_core import RequestError, explain
from parallel_core.command_line import cli
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.explanation import HEADINGS, explanation


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_explains_all_parts(experiment: Experiment) -> None:
    told = explanation(experiment)
    assert told.question.endswith("?")
    assert tuple(heading for heading, _ in told.parts) == HEADINGS
    assert experiment.chapter in dict(told.parts)["Book"][0]
    titles = [exercise.title for exercise in experiment.exercises] or [experiment.remark]
    assert [title for title in titles if title not in dict(told.parts)["Book"][0]] == []


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_the_command_prints_them_and_needs_no_backend(experiment: Experiment) -> None:
    done = CliRunner().invoke(cli, ["run", experiment.name, "--explain"])
    assert done.exit_code == 0
    for heading in HEADINGS:
        assert f"\n{heading}\n" in done.output
    assert explanation(experiment).question.split()[-1] in done.output


def test_the_command_lists_the_variants_behind_the_parts() -> None:
    _, told = CliRunner().invoke(cli, ["run", "overlap", "--explain"]).output.split("\nVariants ")
    words = " ".join(told.split())
    for variant in VARIANTS:
        assert f"  {variant.name} ({variant.backends[0]}" in told
        assert variant.meaning in words
    assert [f"bulk-{one}" for one in ("off (mxnet, the default)", "on (mxnet)")] == [
        line.strip() for line in told.splitlines() if line.startswith("  bulk")
    ]
    assert "temporary-space-low (mxnet on CPUs)" in told
    assert "copy-on-compute-queue (mxnet on CPUs and torch)" in told


def test_a_docstring_of_another_form_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "parallel_core.experiments.automatic_parallelism.overlap.__doc__", "Overlap?\n\nMethod: none.\n\nBook: none."
    )
    with pytest.raises(ValueError, match=r"overlap explains Method, Book, and not Book"):
        explanation(EXPERIMENTS["overlap"])


def test_a_paragraph_without_a_heading_belongs_to_the_part_above(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = "\n\n".join(f"{heading}: of {heading}." for heading in HEADINGS)
    monkeypatch.setattr(
        "parallel_core.experiments.automatic_parallelism.overlap.__doc__", f"Overlap?\n\n{parts}\n\nAnd: more\nof it."
    )
    assert dict(explanation(EXPERIMENTS["overlap"]).parts)["Read"] == ("of Read.", "And: more of it.")


def test_a_notebook_asks_by_name_and_gets_paragraphs() -> None:
    markdown = explain("overlap")._repr_markdown_()
    assert markdown.startswith("**Overlap: can results travel")
    assert [line for line in markdown.split("\n\n") if line.startswith("**")][1:] == [
        f"**{heading}.** {texts[0]}" for heading, texts in explain("overlap").parts
    ]
    with pytest.raises(RequestError, match=r"unknown experiment 'overlaps' \(known: async, "):
        explain("overlaps")
