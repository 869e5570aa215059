"""Invalid input is one line that says what is wrong or what was meant, and status 2.

What each line is, `tests/golden/expected/refusals.txt` holds.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

import backends
from backends.registry.loading import title
from parallel_core.experiments import EXPERIMENTS
from parallel_core.run.options import usual_backend
from tests.conftest import RunProgram
from tests.parallel_core.command_line.refused import assert_refused
from tests.parallel_core.command_line.test_command_line import run

HERE = {name for name in backends.names() if name == "numpy" or find_spec(name)}

ENDING = """
import sys
from backends.numpy.backend import NumPyBackend
class Net:
    def __init__(self, devices, kind, engine, threads):
        {when_loaded}
        self.inner = NumPyBackend(devices, kind, engine, threads)
    def __getattr__(self, name):
        return getattr(self.inner, name)
    def launch(self, fn, *args):
        sys.exit(0)
"""


@pytest.mark.parametrize("when_loaded", ["sys.exit(0)", ""], ids=["loading", "launch"])
def test_a_backend_that_ends_the_program_is_refused_in_one_line(
    tmp_path: Path, when_loaded: str
) -> None:
    file = tmp_path / "engine.py"
    file.write_text(ENDING.format(when_loaded=when_loaded))
    # In a separate process, where the engine becomes known by its name.
    done = run("run", "building-blocks", f"--backend={file}:Net")
    assert_refused(done)
    assert "exit" in done.stderr.lower()


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
def test_a_misspelt_name_gets_the_nearest_one_and_no_list(
    program: RunProgram, words: str, meant: str
) -> None:
    done = program(*words.split())
    assert_refused(done, f" {meant}?\n")
    assert {*done.stderr.replace("'", " ").replace("?", "").split()} & {*EXPERIMENTS} <= {meant}


def test_a_name_that_is_like_none_gets_all_that_a_user_can_call(program: RunProgram) -> None:
    done = program("nonsense")
    assert_refused(done)
    _, _, known = done.stderr.removesuffix(")\n").partition(" (known: ")
    assert {"run", "compare", "list"} < {*known.split(", ")}


def test_a_run_that_names_no_framework_takes_one_that_is_installed(program: RunProgram) -> None:
    assert_refused(program("run", "barriers", "--devices=0"))
    assert usual_backend() in HERE
    done = program("run", "parallel", "--size=32", "--rounds=1")
    _question, about_backend, *_ = done.stdout.splitlines()
    assert about_backend.startswith(title(usual_backend()))
