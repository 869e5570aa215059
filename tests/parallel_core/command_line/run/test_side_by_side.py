"""`run EXPERIMENT --backend mxnet,torch`: several backends in turns."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.parallel_core.command_line.test_command_line import run

pytestmark = pytest.mark.long

SMALL = ("run", "parallel", "--size", "64")


def test_both_do_the_same_work_and_there_is_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    done = run(*SMALL, "--backend", "mxnet,torch", "--json", str(path))
    assert done.returncode in (0, 3), done.stderr
    tables, answer = " ".join(done.stdout.split()).split(" Answer ")
    assert re.search(r"torch async against mxnet async: ", answer)
    assert answer.count("What would change it: ") == 1
    assert "mxnet async: " in answer
    assert "torch async: " in answer
    assert "one after the other" not in tables
    cells = json.loads(path.read_text())["cells"]
    assert [cell["backend"] for cell in cells] == ["mxnet", "torch"]
    assert {one["parameters"]["size"] for cell in cells for one in cell["results"]} == {64}


def test_each_backend_runs_in_the_environment_that_is_named_for_it_on_its_own_engine(tmp_path: Path) -> None:
    path, other = tmp_path / "both.json", tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    named = ("--backend", "numpy,torch", "--python", f"torch={other}")
    done = run(*SMALL, *named, "--json", str(path))
    assert done.returncode in (0, 3), done.stderr
    told = " ".join(done.stdout.split())
    assert told.startswith("numpy on its sync engine and torch on its async engine: ")
    assert re.search(r"torch async against numpy sync: ", told)
    cells = [(one["backend"], one["engine"]) for one in json.loads(path.read_text())["cells"]]
    assert cells == [("numpy", "sync"), ("torch", "async")]
    asked = (tmp_path / "asked").read_text()
    assert "--backend torch" in asked
    assert "--backend numpy" not in asked
