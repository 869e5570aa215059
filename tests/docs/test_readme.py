"""Each command of the README names what exists, and the README stays a page that is read in three minutes.

Those that run the program are run in `test_guides.py`, on little work. Those that set up are not: they would install
gigabytes, or take all tests' time, so what they name must exist: the target, the extra, the folder.
"""

import shlex
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser

import pytest

from tests.docs.markdown import links, shell_lines
from tests.tree import ROOT

README = (ROOT / "README.md").read_text()
COMMANDS = shell_lines(README)


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


def test_the_targets_exist() -> None:
    targets = [target for command in COMMANDS if command.startswith("make ") for target in command.split()[1:]]
    planned = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert (planned.returncode, len(targets) > 1) == (0, True), planned.stderr


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


@pytest.mark.long
def test_the_examination_of_the_installation_finds_nothing_broken(require: Callable[[str], None]) -> None:
    require("torch")  # Without a framework but NumPy, its status is 1.
    assert "parallel-core doctor" in COMMANDS
    done = subprocess.run([sys.executable, "-m", "parallel_core", "doctor"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, "broken" in done.stdout) == (0, False), done.stdout + done.stderr
