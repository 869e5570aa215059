"""Tables of a comparison: they have what the file holds, of two frameworks or three."""

from pathlib import Path

import pytest

from benchmarks.tables.all_tables import write_table
from parallel_core.comparison.storage import write_comparison
from tests.parallel_core.comparison.made_up import comparison, failed, parallel
from tests.parallel_core.comparison.test_account import scaled

SECONDS = {"mxnet": 1.0, "torch": 2.0, "jax": 0.5}


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def write(folder: Path, *names: str, without: str = "") -> None:
    cells = [
        failed(parallel(name, engine))
        if name == without
        else scaled(parallel(name, engine), SECONDS[name] * (1 + (engine == "sync")), 0.5)
        for name in names
        for engine in ("async", "sync")
    ]
    write_comparison(comparison(*cells), folder / "comparison.json")


@pytest.mark.parametrize("names", [("mxnet", "torch"), ("mxnet", "torch", "jax"), ("torch", "jax")])
def test_questions_and_differences_have_all_frameworks(tmp_path: Path, names: tuple[str, ...]) -> None:
    write(tmp_path, *names)
    titles = {"mxnet": "MXNet", "torch": "PyTorch", "jax": "JAX"}
    cells = [row[1] for row in rows(write_table("comparison", tmp_path))]
    assert cells == [f"{titles[name]} {engine}" for name in names for engine in ("async", "sync")]
    ((_, *figures),) = rows(write_table("comparison-answer", tmp_path))
    assert len(figures) == 2 * len(names)
    compared = [row[0] for row in rows(write_table("comparison-differences", tmp_path))]
    assert compared == [f"{titles[name]} against {titles[names[0]]}" for name in names[1:]]


def test_without_the_first_framework_the_others_are_compared_with_the_next(tmp_path: Path) -> None:
    write(tmp_path, "mxnet", "torch", "jax", without="mxnet")
    ((compared, _, difference, _),) = rows(write_table("comparison-differences", tmp_path))
    assert compared == "JAX against PyTorch"
    assert difference.endswith(" faster")
