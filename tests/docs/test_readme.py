"""Each command of the README does what is said of it, and the README stays a page that is read in three minutes.

Those that run the program are run, on little work. Those that set up are not: they would install gigabytes, or take all
tests' time, so what they name must exist: the target, the extra, the folder.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest

from parallel_core.experiments import EXPERIMENTS
from tests.docs.markdown import links, shell_lines
from tests.tree import ROOT

README = (ROOT / "README.md").read_text()
COMMANDS = shell_lines(README)
DOCTOR = "parallel-core doctor"
LITTLE_WORK = ("--size", "64", "--copies", "2", "--rounds", "1", "--budget", "5")
FRAMEWORKS = ("mxnet", "torch")


def program(command: str) -> bool:
    return command.startswith("parallel-core ")


def measures(command: str) -> bool:
    return command.startswith("parallel-core run ") and "--explain" not in command


def run_program(command: str, folder: Path, added: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "parallel_core", *shlex.split(command)[1:], *added],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    # A machine that other work disturbs may leave everything open, and says so: status 3.
    assert done.returncode in ((0, 3) if measures(command) else (0,)), done.stderr
    return done.stdout


def test_one_reads_it_in_three_minutes_and_its_first_part_is_marked_for_the_site_and_for_translators() -> None:
    assert len(README.splitlines()) <= 90
    before, _, rest = README.partition("<!-- start: first part -->\n")
    first_part, _, after = rest.partition("<!-- end: first part -->\n")
    assert all((before, first_part, after))
    assert "make demo" in first_part
    assert "<!-- table:" not in first_part
    assert [link for link in links(README) if not (ROOT / link).is_file()] == []


def test_every_command_is_of_a_kind_that_is_tested() -> None:
    kinds = ("make ", "pip install ", ". .venv/", "parallel-core ")
    assert [command for command in COMMANDS if not command.startswith(kinds)] == []
    assert len(COMMANDS) >= len(kinds)


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith("make ")])
def test_a_target_exists(command: str) -> None:
    planned = subprocess.run(["make", "-n", *shlex.split(command)[1:]], cwd=ROOT, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith("pip install ")])
def test_an_extra_and_its_constraints_exist(command: str) -> None:
    _, _, dash_c, constraints, dash_e, place = shlex.split(command)
    assert (dash_c, dash_e) == ("-c", "-e")
    assert (ROOT / constraints).is_file()
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert place.removeprefix(".[").removesuffix("]") in settings["options.extras_require"]


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith(". ")])
def test_the_environment_is_the_one_that_make_fills(command: str) -> None:
    folder = command.removeprefix(". ").removesuffix("/activate")
    assert f"BIN := {folder}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("command", [one for one in COMMANDS if program(one) and not measures(one) and one != DOCTOR])
def test_the_program_says_something(command: str, tmp_path: Path) -> None:
    assert len(run_program(command, tmp_path).splitlines()) > 5


@pytest.mark.long
def test_the_examination_of_the_installation_finds_nothing_broken(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("torch")  # Without a framework but NumPy, its status is 1.
    assert DOCTOR in COMMANDS
    assert "broken" not in run_program(DOCTOR, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("command", [one for one in COMMANDS if measures(one)])
def test_an_experiment_runs_and_gives_its_figure(command: str, tmp_path: Path, require: Callable[[str], None]) -> None:
    words = shlex.split(command)
    for framework in FRAMEWORKS:
        if framework in words:
            require(framework)
    told = run_program(command, tmp_path, LITTLE_WORK)
    assert EXPERIMENTS[words[2]].main.name in told
    files = [words[place + 1] for place, word in enumerate(words) if word in ("--trace", "--timeline")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
