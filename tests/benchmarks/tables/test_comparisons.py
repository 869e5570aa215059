"""Tables of a comparison: they have what the file holds, of two frameworks or three."""

from pathlib import Path

import pytest

from benchmarks.tables.all_tables import write_table
from parallel_core.comparison.storage import write_comparison
from tests.parallel_core.comparison.made_up import comparison, failed, parallel
from tests.parallel_core.comparison.test_factors import scaled

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
def test_a_row_for_each_framework_and_a_cell_for_each_engine(tmp_path: Path, names: tuple[str, ...]) -> None:
    write(tmp_path, *names)
    titles = {"mxnet": "MXNet", "torch": "PyTorch", "jax": "JAX"}
    table = write_table("comparison-of-factors", tmp_path)
    assert f"async: time / {titles[names[0]]}’s" in table.splitlines()[0]
    assert [row[1] for row in rows(table)] == [titles[name] for name in names]
    cells = [row[1] for row in rows(write_table("comparison", tmp_path))]
    assert cells == [f"{titles[name]} {engine}" for name in names for engine in ("async", "sync")]


def test_ratios_are_to_the_first_framework_and_to_the_own_other_engine(tmp_path: Path) -> None:
    write(tmp_path, "mxnet", "torch", "jax")
    first, second, third = rows(write_table("comparison-of-factors", tmp_path))
    assert first[2:4] == ["", ""]
    assert second[2].startswith("2.00 (")
    assert third[2].startswith("0.50 (")
    for row in (first, second, third):
        assert row[4].startswith("2.00 (")
        assert row[5].startswith("1.00 (")
        assert " × 2.00 (" in row[5]


def test_without_the_first_framework_it_is_said_whose_times_the_others_are_over(tmp_path: Path) -> None:
    write(tmp_path, "mxnet", "torch", "jax", without="mxnet")
    first, second, third = rows(write_table("comparison-of-factors", tmp_path))
    assert first[2:] == [""] * 4
    assert second[2:4] == [""] * 2
    assert third[2].endswith("), of PyTorch’s")


def test_the_answer_is_a_list_with_an_item_for_each_framework_but_the_first(tmp_path: Path) -> None:
    write(tmp_path, "mxnet", "torch", "jax")
    items = write_table("comparison-answer", tmp_path).splitlines()
    assert all(item.startswith("> - ") for item in items)
    ratios = [item for item in items if " times as long as mxnet" in item]
    assert [item.split(": ")[1].split()[0] for item in ratios] == ["torch", "jax"]
