"""`run --guess`: the guess stands beside the answer and in the JSON, and a bad one is refused before anything runs."""

import json
from pathlib import Path

import pytest

from tests.conftest import MEASURED
from tests.parallel_core.command_line.test_command_line import run

SMALL = ["run", "parallel", "--backend", "numpy", "--size", "16", "--rounds", "3"]


def test_the_guess_is_told_last_and_written(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = run(*SMALL, "--guess", "1e6", "--json", str(path))
    assert done.returncode in MEASURED, done.stderr
    last = done.stdout.split("\n\n")[-1]
    assert last.startswith("You guessed 1,000,000; measured ")
    written = json.loads(path.read_text())
    assert written["guess"]["metric"] == "parallel_speedup"
    assert written["guess"]["value"] == 1e6
    assert written["guess"]["reason"] in " ".join(last.split())


def test_without_a_guess_nothing_is_said_of_one(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = run(*SMALL, "--json", str(path))
    assert "guessed" not in done.stdout
    assert "guess" not in json.loads(path.read_text())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("parallel", "--backend", "numpy", "--guess", "much"), "'much' is not a valid float"),
        (("parallel", "--backend", "numpy", "--guess", "-1"), "parallel_speedup cannot be -1"),
        (("overlap", "--backend", "numpy", "--guess", "1.4"), "guess a number between -1 and 1"),
        (("parallel", "--backend", "numpy", "--guess", "nan"), "a guess of parallel_speedup is a number, and not nan"),
        (("parallel", "--backend", "numpy,torch", "--guess", "1"), "--guess is for one backend at a time"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_guess_is_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run("run", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
