"""What is misspelt or missing: the one name that is meant, or the names that can be given here."""

from importlib.util import find_spec

import pytest

import backends
from parallel_core.experiments import EXPERIMENTS
from tests.conftest import RunProgram

HERE = {name for name in backends.names() if name == "numpy" or find_spec(name)}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("rn", "run"),
        ("run barrier", "barriers"),
        ("run parallel --backend mxet", "mxnet"),
        ("lab strt", "start"),
        ("launch -- run data-paralel", "data-parallel"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one_and_no_list(program: RunProgram, words: str, meant: str) -> None:
    done = program(*words.split())
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.split()[-1] == f"{meant}?"
    assert {*done.stderr.replace("'", " ").replace("?", "").split()} & {*EXPERIMENTS} <= {meant}


def test_a_name_that_is_like_none_gets_all_that_a_user_can_call(program: RunProgram) -> None:
    stderr = program("nonsense").stderr
    known = stderr.partition("(known: ")[2].removesuffix(")\n").split(", ")
    assert {"run", "compare", "list"} < {*known}
    assert "measure" not in known


@pytest.mark.parametrize("words", ["run barriers", "launch --processes 2 -- run data-parallel"])
def test_a_missing_backend_is_chosen_among_those_installed(program: RunProgram, words: str) -> None:
    done = program(*words.split())
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    named = {*done.stderr.rpartition(": ")[2].strip().split(", ")}
    # NumPy has no processes.
    assert named == (HERE if words.startswith("run") else HERE - {"numpy"})
