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
    """Iterate over all objects in a JSON value, itself and those within others too."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


RESULT_KEYS = {"experiment", "metrics", "checks"}
"""Those that tell a result from other objects."""


@pytest.fixture(scope="module")
def stored_results() -> list[dict[str, Any]]:
    """The results that are kept with the benchmarks."""
    results = []
    for path in tracked("benchmarks/results", suffix=".json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        results += [value for value in objects(document) if value.keys() >= RESULT_KEYS]
    return results


def test_every_metric_that_was_measured_is_explained(
    stored_results: list[dict[str, Any]],
) -> None:
    assert len(stored_results) > 50
    for result in stored_results:
        assert unexplained(result) == set(), result["experiment"]


def test_a_metric_that_no_page_explains_is_found() -> None:
    result = {
        "experiment": "overlap",
        "metrics": {"overlap_efficiency": 1.0, "beauty": 1.0},
        "checks": {},
    }
    assert unexplained(result) == {"beauty"}


def test_only_metrics_of_experiments_are_explained(stored_results: list[dict[str, Any]]) -> None:
    known_names: set[str] = set()
    for experiment in EXPERIMENTS.values():
        known_names.update(count.name for count in experiment.counts)
    for result in stored_results:
        known_names.update(result["metrics"], result["checks"])
    sources = [path.read_text() for path in tracked("parallel_core/experiments", suffix=".py")]
    all_sources = "".join(sources)

    for names in explained().values():
        for name in names:
            is_pattern = "{" in name
            # The names of a range's ends are made from the metric's.
            declared_name = name.removeprefix("lowest_").removeprefix("highest_")
            if not is_pattern and name not in known_names:
                assert f'"{declared_name}"' in all_sources


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_experiments_count_is_explained_of_each(name: str) -> None:
    explained_names = list(explained()[name])
    for count in EXPERIMENTS[name].counts:
        assert count.name in explained_names
    assert len(explained_names) == len(set(explained_names))


def test_every_command_has_a_section(root: Path) -> None:
    page = (root / "docs" / "reference" / "commands.md").read_text()
    for names, command in commands():
        if len(names) == 1 and not command.hidden:
            assert f"```{{command}} {names[0]}\n" in page
