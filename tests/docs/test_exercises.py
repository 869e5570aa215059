"""Each exercise of the chapters has a page, whose commands are those of the program's list, and
they can be run.
"""

import re
import shlex
from pathlib import Path

import pytest

from parallel_core.experiments import EXPERIMENTS
from tests.conftest import MEASURED
from tests.docs.test_guides import unknown_options
from tests.parallel_core.command_line.test_command_line import run
from tests.tree import tracked

PAGES = {
    path.stem: path.read_text()
    for path in tracked("docs/exercises", suffix=".md")
    if path.stem != "index"
}
COMMAND = re.compile(r"^\$ parallel-core (.+)$", re.MULTILINE)
# So little work that times say nothing.
SMALL = {
    "allreduce": "--sizes 4KiB --rounds 1",
    "barriers": "--size 16 --deepest 2 --rounds 1",
    "batch-scaling": "--batch-size 8 --steps 1 --rounds 1",
    "cost-model": "--largest 128 --rounds 1 --budget 1",
    "dependencies": "--size 16 --rounds 1",
    "eager-cpu": "--size 16 --rounds 1 --against none",
    "evaluate": "--train-steps 1 --images 100 --rounds 1 --budget 1",
    "independent-ops": "--size 16 --rounds 1 --budget 1",
    "learning-rates": "--rates 0.1,0.4 --batch-size 8 --limit 1 --rounds 1 --devices 2",
    "small-ops": "--sizes 8 --rounds 1 --budget 1",
    "three-way": "--size 16 --copies 1 --rounds 1",
}


def commands(page: str) -> list[list[str]]:
    """Return the commands that a page tells its reader to run, without the program's name."""
    return [shlex.split(words) for words in COMMAND.findall(PAGES[page])]


def test_every_exercise_stands_on_a_page_with_the_command_that_the_list_names() -> None:
    pages = set()
    for experiment in EXPERIMENTS.values():
        for exercise in experiment.exercises:
            # A page says where in the chapters its exercise stands.
            place = f"*{experiment.chapter}, {exercise.title}.*"
            (page,) = [name for name, text in PAGES.items() if place in text.splitlines()[2]]
            pages.add(page)
            words = commands(page)[0]
            assert words[:2] == ["run", experiment.name]
            assert PAGES[page].startswith(f"# {experiment.question}\n")
            # A file on the page stands for FILE in the list.
            listed = [word for word in exercise.options.split() if not word.startswith("FILE")]
            assert [word for word in words if word in listed] == listed
    assert pages == PAGES.keys()


@pytest.mark.parametrize("page", PAGES)
def test_the_program_takes_its_commands(page: str) -> None:
    assert commands(page)
    for words in commands(page):
        assert unknown_options(words) == []


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_its_commands_run_at_small_sizes(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        small = SMALL[words[1]].split() if words[0] == "run" else []
        done = run(*words, *small)
        assert done.returncode in MEASURED, done.stderr
        if "--guess" in words:
            assert "You guessed " in done.stdout
