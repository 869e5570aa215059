"""Each command of the guides is one that the program has, with these options; links lead to files.

The README's own commands are run (`test_readme.py`).
"""

import re
import shlex
from importlib.util import find_spec

import click

from parallel_core.command_line import cli
from tests.docs.markdown import links, shell_lines
from tests.tree import ROOT

GUIDES = sorted(
    path
    for folder in ("start", "exercises", "results", "how-to", "explanation")
    for path in (ROOT / "docs" / folder).rglob("*.md")
)
IN_GUIDES = sorted({command for path in GUIDES for command in shell_lines(path.read_text())})
OURS = [command for command in IN_GUIDES if "parallel-core " in command or "parallel_core " in command]
MOST_ENTRIES = 15


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
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word for word in own if word.startswith("-") and not re.fullmatch(r"-\d*", word)]
    unknown = [option for option in given if option not in {*known, "--help"}]
    # What is launched is a command of ours again; what is profiled is anybody's.
    return [*unknown, *(unknown_options(inner) if command.name == "launch" and inner else [])]


def words_of(command: str) -> list[str]:
    words = shlex.split(command)
    ours = next(place for place, word in enumerate(words) if word in ("parallel-core", "parallel_core"))
    return words[ours + 1 :]


def test_the_program_has_every_command_and_its_options_and_every_benchmark_exists() -> None:
    assert [command for command in OURS if unknown_options(words_of(command))] == []
    benchmarks = [command.split()[2] for command in IN_GUIDES if command.startswith("python -m benchmarks")]
    assert [module for module in benchmarks if find_spec(module) is None] == []
    # What it does not have is found.
    assert unknown_options(words_of("parallel-core walk overlap")) == ["walk"]
    assert unknown_options(words_of("parallel-core run overlap --walk 3")) == ["--walk"]
    assert unknown_options(words_of("A=1 parallel-core launch --processes 2 -- run allreduce --walk")) == ["--walk"]
    assert unknown_options(words_of("parallel-core profile -- python train.py --epochs 1")) == []


def test_links_lead_to_files() -> None:
    for path in (*GUIDES, *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        assert [link for link in links(text) if not (path.parent / link).is_file()] == [], path


def test_a_folder_has_few_entries_and_every_guide_is_in_the_list_that_a_reader_sees() -> None:
    folders = {path.parent for path in GUIDES if path.parent.name != "exercises"}
    assert [folder for folder in folders if len([*folder.iterdir()]) > MOST_ENTRIES] == []
    for folder in {path.parent for path in GUIDES if path.name != "index.md"}:
        listed = links((folder / "index.md").read_text())
        assert [path.name for path in sorted(folder.glob("*.md")) if path.name not in (*listed, "index.md")] == []
