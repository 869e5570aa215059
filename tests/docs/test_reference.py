"""The reference has every command, metric and kind of page; the experiments' own tests hold their
metrics to it too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parallel_core.experiments import EXPERIMENTS
from tests.docs.metrics import explained, unexplained
from tests.parallel_core.command_line.test_bounds import commands
from tests.tree import tracked


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Iterate over all objects in a JSON value."""
    if isinstance(value, dict):
        yield value
        value = [*value.values()]
    if isinstance(value, list):
        for one in value:
            yield from objects(one)


@pytest.fixture(scope="module")
def stored() -> list[dict[str, Any]]:
    """The results that are kept with the benchmarks."""
    files = tracked("benchmarks/results", suffix=".json")
    found = (one for path in files for one in objects(json.loads(path.read_text(encoding="utf-8"))))
    return [one for one in found if {"experiment", "metrics", "checks"} <= one.keys()]


def test_every_metric_that_was_measured_is_explained(stored: list[dict[str, Any]]) -> None:
    assert len(stored) > 50
    assert {(one["experiment"], name) for one in stored for name in unexplained(one)} == set()
    result = {
        "experiment": "overlap",
        "metrics": {"overlap_efficiency": 1.0, "beauty": 1.0},
        "checks": {},
    }
    assert unexplained(result) == {"beauty"}


def test_only_metrics_of_experiments_are_explained(stored: list[dict[str, Any]]) -> None:
    sources = "".join(
        path.read_text() for path in tracked("parallel_core/experiments", suffix=".py")
    )
    counted = {count.name for experiment in EXPERIMENTS.values() for count in experiment.counts}
    measured = {name for one in stored for name in (*one["metrics"], *one["checks"], *counted)}
    names = {name for own in explained().values() for name in own if "{" not in name}
    # Those of a range begin with its end.
    declared = {name.removeprefix("lowest_").removeprefix("highest_") for name in names - measured}
    assert {name for name in declared if f'"{name}"' not in sources} == set()


def test_what_experiments_count_is_explained_of_each() -> None:
    for name, experiment in EXPERIMENTS.items():
        assert {count.name for count in experiment.counts} - {*explained()[name]} == set()
        assert len(explained()[name]) == len({*explained()[name]})


def test_every_command_has_a_section(root: Path) -> None:
    page = (root / "docs" / "reference" / "commands.md").read_text()
    shown = [names[0] for names, command in commands() if len(names) == 1 and not command.hidden]
    assert [name for name in shown if f"```{{command}} {name}\n" not in page] == []


def test_no_page_has_more_lines_than_one_reads(root: Path) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in tracked("docs", suffix=".md")}
    assert {
        str(path.relative_to(root)): length for path, length in lengths.items() if length > 250
    } == {}
