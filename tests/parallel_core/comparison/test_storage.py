"""A saved comparison is read whole or refused in one line, and nothing in it says where a file is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from parallel_core.comparison.storage import write_comparison
from tests.conftest import RunProgram
from tests.parallel_core.comparison.made_up import comparison, measured, parallel

ELSEWHERE = ("../../elsewhere", "/{}/elsewhere", "x/../../../elsewhere", "..", ".", "x/y", "x\0y", "x\n")


def saved(folder: Path, *place: str | int, name: str) -> Path:
    """Save a comparison in a folder, with another name at a place."""
    folder.mkdir()
    write_comparison(comparison(measured(parallel("torch"), (1.0, 1.1))), folder / "comparison.json")
    read = found = json.loads((folder / "comparison.json").read_text())
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = name.format(folder.parent)
    (folder / "comparison.json").write_text(json.dumps(read))
    return folder


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("key", ["experiment", "backend", "engine"])
@pytest.mark.parametrize("name", [*ELSEWHERE, "x" * 300, "-"])
def test_a_cell_of_no_name_that_a_cell_can_have_is_refused(
    program: RunProgram, tmp_path: Path, key: str, name: str
) -> None:
    folder = saved(tmp_path / "saved", "cells", 0, key, name=name)
    done = program("report", str(folder))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert files_in(tmp_path) == {"saved/comparison.json"}


RESULT: tuple[Any, ...] = ("cells", 0, "results", 0)


@pytest.mark.parametrize(
    "place",
    [
        (*RESULT, "experiment"),
        (*RESULT, "backend", "name"),
        (*RESULT, "backend", "engine"),
        (*RESULT, "backend", "version"),
        (*RESULT, "backend", "devices", 0),
        (*RESULT, "cases", 0, "name"),
        (*RESULT, "data"),
        ("command",),
    ],
)
@pytest.mark.parametrize("name", ELSEWHERE[:3])
def test_no_other_name_in_it_becomes_a_path(
    program: RunProgram, tmp_path: Path, place: tuple[Any, ...], name: str
) -> None:
    folder = saved(tmp_path / "saved", *place, name=name)
    assert program("report", str(folder)).returncode in (0, 2)
    written = {"saved/comparison.json", "saved/report.html", "saved/pyperf/torch-async.json"}
    assert files_in(tmp_path) in (written, {"saved/comparison.json"})
