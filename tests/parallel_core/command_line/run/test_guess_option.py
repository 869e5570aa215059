"""`run --guess`: the guess stands beside the answer and in the JSON."""

import json
from pathlib import Path

from tests.conftest import MEASURED, RunProgram

SMALL = ["run", "parallel", "--backend", "numpy", "--size", "16", "--rounds", "3"]


def test_the_guess_is_told_last_and_written(program: RunProgram, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = program(*SMALL, "--guess", "1e6", "--json", str(path))
    assert done.returncode in MEASURED, done.stderr
    last = done.stdout.split("\n\n")[-1]
    assert last.startswith("You guessed 1,000,000; measured ")
    written = json.loads(path.read_text())
    assert written["guess"]["metric"] == "parallel_speedup"
    assert written["guess"]["value"] == 1e6
    assert written["guess"]["reason"] in " ".join(last.split())


def test_without_a_guess_nothing_is_said_of_one(program: RunProgram) -> None:
    done = program(*SMALL, "--json", "-")
    assert "guess" not in json.loads(done.stdout)
    assert "guessed" not in done.stderr
