"""Each command of the README and of the guides is one that the program has, with these options;
links lead to files.

What the README and the how-to pages run on one machine is run, on little work and page by page.
Comparisons, labs, conformance and ranks on two hosts have tests of whole processes elsewhere.
"""

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
    blocks = "".join(body for _, body in BLOCK.findall(text)).replace("\\\n", " ")
    commands = (re.sub(r"(^|\s)#.*", "", line).strip() for line in blocks.splitlines())
    return [" ".join(command.split()) for command in commands if command]


def links(text: str) -> list[str]:
    """Return the files that a page links to or shows, as they stand there."""
    return LINK.findall(CODE.sub("", text))


GUIDES = sorted(
    path
    for folder in ("start", "exercises", "results", "how-to", "explanation")
    for path in (ROOT / "docs" / folder).rglob("*.md")
)
README = ROOT / "README.md"
IN_GUIDES = sorted(
    {command for path in (README, *GUIDES) for command in shell_lines(path.read_text())}
)
OURS = [
    command for command in IN_GUIDES if "parallel-core " in command or "parallel_core " in command
]
START = ROOT / "docs" / "start" / "index.md"
IN_TABLES = [
    command
    for path in (README, START)
    for command in re.findall("`(parallel-core [^`]+)`", path.read_text())
    # What stands for a reader's own is in capitals.
    if not re.search("[A-Z]{3}", command)
]
TRAINING = ("--limit", "2", "--batch-size", "24")
LITTLE_WORK: Mapping[str, tuple[str, ...]] = {
    "list": (),
    "run async": ("--size", "64", "--steps", "100", "--budget", "1"),
    "run barriers": ("--size", "64", "--deepest", "2", "--budget", "1"),
    "run overlap": ("--size", "64", "--products", "4", "--copies", "2", "--budget", "1"),
    "run parallel": ("--size", "64", "--budget", "1"),
    "run independent-ops": ("--size", "64", "--budget", "1"),
    "run small-ops": ("--sizes", "8", "--budget", "1"),
    "run allreduce": ("--sizes", "4KiB", "--budget", "1"),
    "run data-parallel": TRAINING,
    "launch allreduce": ("--budget", "1"),
    "launch data-parallel": TRAINING,
    "profile": (),
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
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        if found is None:
            return [name]
        command = found
    end = words.index("--") if "--" in words else len(words)
    own, inner = words[:end], words[end + 1 :]
    known = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    given = [word for word in own if word.startswith("-") and not re.fullmatch(r"-\d*", word)]
    unknown = [option for option in given if option not in {*known, "--help"}]
    # What is launched is a command of ours again; what is profiled is anybody's.
    return [*unknown, *(unknown_options(inner) if command.name == "launch" and inner else [])]


def words_of(command: str) -> list[str]:
    words = shlex.split(command)
    ours = next(
        place for place, word in enumerate(words) if word in ("parallel-core", "parallel_core")
    )
    return words[ours + 1 :]


def test_the_program_has_every_command_and_its_options_and_every_benchmark_exists() -> None:
    assert len(IN_TABLES) > 10
    assert [command for command in (*OURS, *IN_TABLES) if unknown_options(words_of(command))] == []
    benchmarks = [
        command.split()[2] for command in IN_GUIDES if command.startswith("python -m benchmarks")
    ]
    assert [module for module in benchmarks if find_spec(module) is None] == []
    # What it does not have is found.
    assert unknown_options(words_of("parallel-core walk overlap")) == ["walk"]
    assert unknown_options(words_of("parallel-core run overlap --walk 3")) == ["--walk"]
    assert unknown_options(
        words_of("A=1 parallel-core launch --processes 2 -- run allreduce --walk")
    ) == ["--walk"]
    assert unknown_options(words_of("parallel-core profile -- python train.py --epochs 1")) == []


def test_links_lead_to_files() -> None:
    for path in (README, *GUIDES, *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        assert [link for link in links(text) if not (path.parent / link).is_file()] == [], path


def test_every_guide_is_in_the_list_that_a_reader_sees() -> None:
    for folder in {path.parent for path in GUIDES if path.name != "index.md"}:
        listed = links((folder / "index.md").read_text())
        assert [
            path.name
            for path in sorted(folder.glob("*.md"))
            if path.name not in (*listed, "index.md")
        ] == []


def little(command: str) -> list[str] | None:
    """Return the words of a page's command, on little work; None if it is not run here."""
    words = shlex.split(command)[1:]
    experiment = words[words.index("run") + 1] if "run" in words else ""
    work = LITTLE_WORK.get(" ".join(filter(None, (words[0], experiment))))
    return None if work is None or any(part in command for part in NO_PART) else [*words, *work]


def commands_of_pages() -> dict[str, list[list[str]]]:
    """Return what is run of each page, but for what a page before it has, too."""
    seen: set[str] = set()
    commands = {}
    for path in (README, START, *(path for path in GUIDES if path.parent.name == "how-to")):
        new = [
            line
            for line in (*shell_lines(path.read_text()), *(IN_TABLES if path == START else ()))
            if line.startswith("parallel-core ") and line not in seen
        ]
        seen.update(new)
        if run := list(filter(None, map(little, new))):
            commands[path.name] = run
    return commands


COMMANDS_OF = commands_of_pages()


@pytest.mark.long
@pytest.mark.parametrize("page", COMMANDS_OF)
def test_what_a_page_runs_succeeds(
    page: str, tmp_path: Path, require: Callable[[str], None]
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    for words in COMMANDS_OF[page]:
        for framework in ("mxnet", "torch"):
            if any(framework in word.split(",") for word in words):
                require(framework)
        done = subprocess.run(
            [sys.executable, "-m", "parallel_core", *words],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        # A machine that other work disturbs may leave everything open, and says so: status 3.
        assert done.returncode in (0, 3), f"{words}: {done.stderr}"
        assert done.stdout or words[0] == "profile"
        assert words[0] != "run" or EXPERIMENTS[words[1]].main.name in done.stdout
        for option in ("--json", "--plot", "--trace", "--timeline"):
            assert (
                option not in words
                or (tmp_path / words[words.index(option) + 1]).stat().st_size > 0
            )


FIRST_PAGE = README.read_text()
IN_README = shell_lines(FIRST_PAGE)


def test_the_readme_takes_three_minutes_and_its_first_part_is_marked_for_translators() -> None:
    assert len(FIRST_PAGE.splitlines()) <= 90
    before, _, rest = FIRST_PAGE.partition("<!-- start: first part -->\n")
    first_part, _, after = rest.partition("<!-- end: first part -->\n")
    assert all((before, first_part, after))
    assert "make demo" in first_part
    assert "<!-- table:" not in first_part


@pytest.mark.parametrize("command", ["run", "profile", "trace", "conformance", "doctor"])
def test_the_readme_names_what_each_of_its_readers_begins_with(command: str) -> None:
    (words, *_) = re.findall(rf"parallel-core {command}\b[^`\n]*", FIRST_PAGE)
    assert unknown_options(words_of(words)) == []


def test_what_the_readme_sets_up_exists() -> None:
    """To run it would install gigabytes, or take all tests' time: targets, extras and the folder
    must be there.
    """
    kinds = ("make ", ". .venv/", "pip install ")
    installation = (ROOT / "docs/how-to/install-and-troubleshoot.md").read_text()
    makes, activations, installs = (
        [one for one in (*IN_README, *shell_lines(installation)) if one.startswith(kind)]
        for kind in kinds
    )
    assert [command for command in IN_README if not command.startswith(kinds)] == []
    assert installs
    targets = [target for command in makes for target in command.split()[1:]]
    planned = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert (planned.returncode, len(targets) > 1) == (0, True), planned.stderr
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    for command in installs:
        _, _, dash_c, constraints, dash_e, place = shlex.split(command)
        assert (dash_c, dash_e, (ROOT / constraints).is_file()) == ("-c", "-e", True)
        assert place.removeprefix(".[").removesuffix("]") in settings["options.extras_require"]
    (folder,) = {command.removeprefix(". ").removesuffix("/activate") for command in activations}
    assert f"BIN := {folder}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.long
def test_the_examination_of_the_installation_finds_nothing_broken(
    require: Callable[[str], None],
) -> None:
    require("torch")  # Without a framework but NumPy, its status is 1.
    done = subprocess.run(
        [sys.executable, "-m", "parallel_core", "doctor"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, "Nothing is broken." in done.stdout) == (0, True), (
        done.stdout + done.stderr
    )
