"""`run EXPERIMENT --backend mxnet,torch`: several backends in turns, and what only one of them can do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "parallel_core", "run", "parallel", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.long
def test_both_do_the_same_work_and_there_is_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    done = program("--backend", "mxnet,torch", "--size", "64", "--json", str(path))
    assert done.returncode in (0, 3), done.stderr
    tables, answer = " ".join(done.stdout.split()).split(" Answer ")
    assert re.search(r"torch async against mxnet async: ", answer)
    assert answer.count("What would change it: ") == 1
    assert "mxnet async: " in answer
    assert "torch async: " in answer
    assert "one after the other" not in tables
    cells = json.loads(path.read_text())["cells"]
    assert [cell["backend"] for cell in cells] == ["mxnet", "torch"]
    assert {run["parameters"]["size"] for cell in cells for run in cell["results"]} == {64}


@pytest.mark.long
def test_each_backend_runs_on_its_own_engine_and_the_heading_says_so(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    done = program("--backend", "numpy,torch", "--size", "64", "--json", str(path))
    assert done.returncode in (0, 3), done.stderr
    told = " ".join(done.stdout.split())
    assert told.startswith("numpy on its sync engine and torch on its async engine: ")
    assert re.search(r"torch async against numpy sync: ", told)
    assert [(one["backend"], one["engine"]) for one in json.loads(path.read_text())["cells"]] == [
        ("numpy", "sync"),
        ("torch", "async"),
    ]


@pytest.mark.long
def test_a_backend_runs_in_the_environment_that_is_named_for_it(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    done = program("--backend", "numpy,torch", "--python", f"torch={other}", "--size", "64")
    assert done.returncode in (0, 3), done.stderr
    asked = (tmp_path / "asked").read_text()
    assert "--backend torch" in asked
    assert "--backend numpy" not in asked
