"""No command writes over what it reads, nor two outputs to one file, whatever they are called."""

import json
import shlex
import shutil
from itertools import permutations, product
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

from parallel_core.doctor.examination import Examination
from parallel_core.labs.grading import FOLDER
from parallel_core.system.files import write_json
from parallel_core.traces.trace_files import write_trace_file
from tests.conftest import RunProgram
from tests.parallel_core.command_line.refused import assert_refused
from tests.parallel_core.command_line.test_trace import OURS
from tests.parallel_core.compare.made_up import comparison, measured, parallel

Words = tuple[str, ...]
RUN = ("run", "building-blocks", "--backend", "numpy")
TRAIN = ("run", "data-parallel", "--backend", "numpy")
COMPARE = tuple(shlex.split("compare building-blocks --backends numpy --engines sync"))


class Reading(NamedTuple):
    """A command, the options by which it writes files, and the files that it reads."""

    command: Words
    options: Words
    """An empty one is an output without an option."""
    inputs: Words


INPUTS = (
    Reading(("trace", "trace.json"), ("--json",), ("trace.json",)),
    Reading(("trace", "traces"), ("--json",), ("traces/rank1.json",)),
    Reading(
        ("diff", "old/comparison.json", "new"),
        ("--json",),
        ("old/comparison.json", "new/comparison.json"),
    ),
    Reading((*COMPARE, "--like", "old"), ("--json",), ("old/comparison.json",)),
    Reading(
        (*COMPARE, "--out", "new-folder"),
        ("--json",),
        ("new-folder/comparison.json", "new-folder/report.html"),
    ),
    Reading(("profile",), ("--json",), ("program.py",)),
    Reading((*TRAIN, "--data-dir", "data"), ("--json", "--trace"), ("data/labels.gz",)),
    Reading((*TRAIN, "--checkpoint", "data"), ("--json", "--trace"), ("data/checkpoint.npz",)),
    Reading(("lab", "check", "queue"), ("--json",), ("queue/engine.py", "queue/README.md")),
    Reading(("report", "old/report.html"), ("",), ("old/report.html",)),
)
OUTPUTS = (
    (("trace", "trace.json"), ("--json", "--timeline")),
    (RUN, ("--json", "--plot", "--trace", "--timeline")),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with everything that commands read, and a link to itself."""
    for name in ("old", "new", "traces", "data"):
        (tmp_path / name).mkdir()
    for path in ("old/comparison.json", "old/report.html", "new/comparison.json"):
        write_json(tmp_path / path, comparison(measured(parallel("torch"), (1.0, 1.1))).as_json())
    for path in ("trace.json", "traces/rank0.json", "traces/rank1.json"):
        write_trace_file(OURS, tmp_path / path)
    (tmp_path / "program.py").write_text("print()")
    (tmp_path / "data/labels.gz").write_text("labels")
    shutil.copytree(FOLDER / "queue", tmp_path / "queue")
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(folder: Path) -> dict[Path, bytes]:
    """Return what each file of a folder holds."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_changes_nothing(program: RunProgram, folder: Path, *arguments: str) -> None:
    """Check that a command is refused, and changes no file."""
    before = content(folder)
    assert_refused(program(*arguments))
    assert content(folder) == before


@pytest.mark.parametrize("reading", INPUTS, ids=lambda reading: " ".join(reading.command[:2]))
def test_what_is_read_is_not_written_over(
    program: RunProgram, folder: Path, reading: Reading
) -> None:
    profiled = ("--", "python", "program.py") if reading.command[0] == "profile" else ()
    for option, path in product(reading.options, reading.inputs):
        # However the file is called.
        for output in (path, f"{folder}/{path}", f"./old/../{path}", f"link/{path}"):
            output_words = (option, output) if option else ()
            assert_changes_nothing(program, folder, *reading.command, *output_words, *profiled)


@pytest.mark.parametrize(("command", "options"), OUTPUTS)
def test_two_outputs_are_two_files(
    program: RunProgram, folder: Path, command: Words, options: Words
) -> None:
    for first_option, second_option in permutations(options, 2):
        same_file = (first_option, "out.svg", second_option, "link/out.svg")
        assert_changes_nothing(program, folder, *command, *same_file)
        standard_output = (first_option, "-", second_option, "-")
        assert_changes_nothing(program, folder, *command, *standard_output)


@pytest.mark.parametrize(
    ("command", "picture"),
    [
        ("run parallel --backend numpy --size 64 --rounds 5", "--plot a.svg"),
        ("trace trace.json", "--timeline a.svg"),
        ("diff old new", ""),
        ("doctor", ""),
    ],
)
def test_a_pipe_that_closes_early_costs_no_file(
    program: RunProgram,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    picture: str,
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(Console, "print", closed)
    monkeypatch.setattr("parallel_core.command_line.doctor.examine", lambda _: Examination((), {}))
    assert program(*f"{command} {picture} --json a.json".split()).returncode == 1
    assert json.loads((folder / "a.json").read_text())
    assert (folder / "a.svg").exists() == bool(picture)


def test_standard_output_and_devices_are_no_files_that_are_lost(
    program: RunProgram, folder: Path
) -> None:
    before = content(folder)
    assert program("trace", "trace.json", "--json", "/dev/null").returncode == 0
    assert json.loads(program("trace", "trace.json", "--json", "-").stdout)["cases"]
    assert Path("/dev/null").is_char_device()
    assert content(folder) == before
