"""Each command of the README and of the guides is one that the program has, with these options;
links lead to files.

What the README and the how-to pages run on one machine is run, on little work and page by page.
Comparisons, labs, conformance and ranks on two hosts have tests of whole processes elsewhere.
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from parallel_core.command_line import cli
from parallel_core.experiments import EXPERIMENTS
from tests.tree import ROOT

BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)")
CODE = re.compile(r"^( *)```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def shell_lines(text: str) -> list[str]:
    """Return the commands of a page's shell blocks, without comments; a line that goes on is one
    command.
    """
    commands = []
    for _, block in BLOCK.findall(text):
        joined_lines = block.replace("\\\n", " ")
        for line in joined_lines.splitlines():
            words = re.sub(r"(^|\s)#.*", "", line).split()
            if words:
                commands.append(" ".join(words))
    return commands


def links(text: str) -> list[str]:
    """Return the files that a page links to or shows, as they stand there."""
    return LINK.findall(CODE.sub("", text))


def commands_in_tables(path: Path) -> list[str]:
    """Return the commands of ours that stand in a page's lines as code, and not in a block."""
    commands = re.findall("`(parallel-core [^`]+)`", path.read_text())
    # What stands for a reader's own is in capitals.
    return [command for command in commands if not re.search("[A-Z]{3}", command)]


README = ROOT / "README.md"
START = ROOT / "docs" / "start" / "index.md"
FOLDERS = ("start", "exercises", "results", "how-to", "explanation")
GUIDES = sorted(
    itertools.chain.from_iterable((ROOT / "docs" / folder).rglob("*.md") for folder in FOLDERS)
)
LINES_OF_PAGES = [shell_lines(path.read_text()) for path in (README, *GUIDES)]
IN_GUIDES = sorted(set(itertools.chain.from_iterable(LINES_OF_PAGES)))
OURS = [command for command in IN_GUIDES if re.search("parallel[-_]core ", command)]
IN_TABLES = [*commands_in_tables(README), *commands_in_tables(START)]
TRAINING = "--limit 2 --batch-size 24"
LITTLE_WORK: Mapping[str, str] = {
    "list": "",
    "run async": "--size 64 --steps 100 --budget 1",
    "run barriers": "--size 64 --deepest 2 --budget 1",
    "run overlap": "--size 64 --products 4 --copies 2 --budget 1",
    "run parallel": "--size 64 --budget 1",
    "run independent-ops": "--size 64 --budget 1",
    "run small-ops": "--sizes 8 --budget 1",
    "run allreduce": "--sizes 4KiB --budget 1",
    "run data-parallel": TRAINING,
    "launch allreduce": "--budget 1",
    "launch data-parallel": TRAINING,
    "profile": "",
}
"""What each command of these pages is given to do; the last options count."""
NO_PART = (
    "gpu",
    "jax",
    "--help",
    "--explain",
    "--engine sync",
    "torchrun",
    "mpirun",
    "engine.py",
    "mine",
    "DMLC_",
)
"""In commands that need another machine or environment, or whose test is another one."""
TRAIN = """
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
"""


def unknown_options(words: list[str]) -> list[str]:
    """Return what the program does not know of a command, without running it."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, *words = words
        subcommand = command.get_command(click.Context(command), name)
        if subcommand is None:
            return [name]
        command = subcommand

    known = {"--help"}
    for parameter in command.params:
        known.update(parameter.opts, parameter.secondary_opts)
    end = words.index("--") if "--" in words else len(words)
    is_option = re.compile(r"-(?!\d*$)")
    unknown = [word for word in words[:end] if is_option.match(word) and word not in known]
    # What is launched is a command of ours again; what is profiled is anybody's.
    launched = words[end + 1 :]
    if command.name == "launch" and launched:
        unknown += unknown_options(launched)
    return unknown


def words_of(command: str) -> list[str]:
    """Return the words of a command of ours that come after the program's name."""
    words = shlex.split(command)
    for position, word in enumerate(words):
        if word in ("parallel-core", "parallel_core"):
            return words[position + 1 :]
    raise ValueError(f"no command of parallel-core: {command}")


def test_the_program_has_every_command_and_its_options() -> None:
    assert len(IN_TABLES) > 10
    for command in (*OURS, *IN_TABLES):
        assert unknown_options(words_of(command)) == [], command


def test_every_benchmark_exists() -> None:
    for command in IN_GUIDES:
        if command.startswith("python -m benchmarks"):
            module = command.split()[2]
            assert find_spec(module) is not None


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ("parallel-core walk overlap", ["walk"]),
        ("parallel-core run overlap --walk 3", ["--walk"]),
        ("A=1 parallel-core launch --processes 2 -- run allreduce --walk", ["--walk"]),
        ("parallel-core profile -- python train.py --epochs 1", []),
    ],
)
def test_what_the_program_does_not_have_is_found(command: str, unknown: list[str]) -> None:
    assert unknown_options(words_of(command)) == unknown


def test_links_lead_to_files() -> None:
    for path in (README, *GUIDES, *sorted((ROOT / "docs").glob("*.md"))):
        for link in links(path.read_text()):
            assert (path.parent / link).is_file(), f"{path} leads to {link}"


def on_little_work(command: str) -> list[str] | None:
    """Return the words of a page's command, on little work; None if it is not run here."""
    if any(part in command for part in NO_PART):
        return None
    _, name, *arguments = shlex.split(command)
    if "run" in (name, *arguments):
        # `run async`, or `launch ... -- run allreduce`, whose work stands as `launch allreduce`.
        words = [name, *arguments]
        experiment = words[words.index("run") + 1]
        work = LITTLE_WORK.get(f"{name} {experiment}")
    else:
        work = LITTLE_WORK.get(name)
    return None if work is None else [name, *arguments, *work.split()]


def commands_of_pages() -> dict[str, list[list[str]]]:
    """Return what is run of each page: each command once, with the first page that has it."""
    seen: set[str] = set()
    commands: dict[str, list[list[str]]] = {}
    how_to_pages = [path for path in GUIDES if path.parent.name == "how-to"]
    for path in (README, START, *how_to_pages):
        lines = shell_lines(path.read_text())
        if path == START:
            lines += IN_TABLES
        for line in lines:
            is_new = line.startswith("parallel-core ") and line not in seen
            words = on_little_work(line) if is_new else None
            seen.add(line)
            if words is not None:
                commands.setdefault(path.name, []).append(words)
    return commands


COMMANDS_OF = commands_of_pages()


@pytest.mark.long
@pytest.mark.parametrize("page", COMMANDS_OF)
def test_what_a_page_runs_succeeds(
    page: str, tmp_path: Path, require: Callable[[str], None]
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    for words in COMMANDS_OF[page]:
        for framework in ("mxnet", "torch"):
            if any(framework in word.split(",") for word in words):
                require(framework)
        command = [sys.executable, "-m", "parallel_core", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        # A machine that other work disturbs may leave everything open, and says so: status 3.
        assert done.returncode in (0, 3), f"{words}: {done.stderr}"
        assert done.stdout or words[0] == "profile"
        assert words[0] != "run" or EXPERIMENTS[words[1]].question in done.stdout
        for option in ("--json", "--plot", "--trace", "--timeline"):
            if option in words:
                file_name = words[words.index(option) + 1]
                assert (tmp_path / file_name).stat().st_size > 0


IN_README = shell_lines(README.read_text())
MAKE, ACTIVATE, INSTALL = "make ", ". .venv/", "pip install "
"""What the commands of the README begin with."""


def test_what_the_readme_sets_up_exists() -> None:
    """To run it would install gigabytes, or take all tests' time: targets, extras and the folder
    must be there.
    """
    installation = (ROOT / "docs/how-to/install-and-troubleshoot.md").read_text()
    commands = [*IN_README, *shell_lines(installation)]
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    extras = settings["options.extras_require"]
    assert all(line.startswith((MAKE, ACTIVATE, INSTALL)) for line in IN_README)

    targets: list[str] = []
    for command in commands:
        if command.startswith(MAKE):
            targets += command.split()[1:]
        elif command.startswith(INSTALL):
            _, _, dash_c, constraints, dash_e, package = shlex.split(command)
            assert (dash_c, dash_e) == ("-c", "-e")
            assert (ROOT / constraints).is_file()
            assert package.removeprefix(".[").removesuffix("]") in extras
        elif command.startswith(ACTIVATE):
            folder = command.removeprefix(". ").removesuffix("/activate")
            assert f"BIN := {folder}\n" in (ROOT / "Makefile").read_text()
    planned = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stderr


@pytest.mark.long
def test_the_examination_of_the_installation_finds_nothing_broken(
    require: Callable[[str], None],
) -> None:
    # Without a framework but NumPy, its status is 1.
    require("torch")
    done = subprocess.run(
        [sys.executable, "-m", "parallel_core", "doctor"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing is broken." in done.stdout
