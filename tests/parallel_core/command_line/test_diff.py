"""`parallel-core diff` of recordings: files, folders of ranks, several a side; else one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import RunProgram
from tests.parallel_core.command_line.refused import assert_refused
from tests.parallel_core.compare.made_up import every_chart
from tests.parallel_core.traces.profile.made_up_recordings import Training

Sides = tuple[list[str], list[str]]
USUAL = Training()
SLOWER = replace(USUAL, computing=1.5)


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    """Record a program three times before a change, and three times after it."""
    before = [recorded(USUAL, tmp_path / f"before-{seed}.json", seed) for seed in range(3)]
    after = [recorded(SLOWER, tmp_path / f"after-{seed}.json", seed) for seed in range(3, 6)]
    return before, after


def recorded(training: Training, path: Path, seed: int) -> str:
    """Record a program, and return the path as a command takes it."""
    return str(training.record(path, seed))


def test_several_recordings_a_side_follow_their_option(
    program: RunProgram, sides: Sides, tmp_path: Path
) -> None:
    before, after = sides
    written = tmp_path / "changes.json"
    done = program("diff", "--after", *after, f"--json={written}", "--before", *before)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(written.read_text())
    assert done.stdout.replace("\n", " ").startswith(document["sentence"])
    assert document["verdict"] == "slower"
    assert document["before"]["number_of_recordings"] == 3
    assert document["after"]["number_of_recordings"] == 3
    assert document["ratio"]["low"] > 1.3


def test_a_folder_of_ranks_is_one_recording(program: RunProgram, tmp_path: Path) -> None:
    folders = []
    for name, training in (("before", USUAL), ("after", SLOWER)):
        folder = tmp_path / name
        folder.mkdir()
        for rank in range(2):
            training.record(folder / f"rank{rank}.json", rank)
        folders.append(str(folder))
    done = program("diff", *folders, "--json=-")
    document = json.loads(done.stdout)
    assert document["verdict"] == "too few runs"
    assert document["before"]["number_of_recordings"] == 1
    assert document["ratio"]["estimate"] > 1.3
    one_rank = program("diff", folders[0], f"{folders[1]}/rank0.json", "--json=-")
    reason, *_ = json.loads(one_rank.stdout)["cannot_answer"]
    assert (reason["question"], reason["code"]) == ("step", "other-processes")


@pytest.mark.parametrize(
    ("percent", "status", "words"),
    [
        ("5", 1, "became slower by more than 5 %"),
        ("43", 3, "by more than 43 % cannot be said"),
        ("90", 0, ""),
    ],
)
def test_a_limit_holds_or_does_not_or_that_cannot_be_said(
    percent: str, status: int, words: str, program: RunProgram, sides: Sides
) -> None:
    before, after = sides
    done = program("diff", "--before", *before, "--after", *after, "--fail-if-slower", percent)
    assert done.returncode == status
    assert done.stdout.startswith("A step takes ")
    assert words in done.stderr
    assert done.stderr.count("\n") == (status != 0)


def test_programs_that_differ_leave_a_limit_open(program: RunProgram, tmp_path: Path) -> None:
    before = recorded(USUAL, tmp_path / "before.json", 0)
    after = recorded(replace(USUAL, layers=9), tmp_path / "after.json", 1)
    assert program("diff", before, after).returncode == 0
    assert program("diff", before, after, "--fail-if-slower=5").returncode == 3


def test_what_cannot_be_read_or_compared_is_one_line(program: RunProgram, tmp_path: Path) -> None:
    recording = recorded(USUAL, tmp_path / "recording.json", 0)
    text, empty = tmp_path / "text.json", tmp_path / "empty"
    text.write_text("no trace")
    empty.mkdir()
    saved = tmp_path / "saved"
    saved.write_text(json.dumps(every_chart().as_json()))
    for arguments, words in (
        ((recording, text), "(nor is it a comparison)"),
        ((text, recording), "(nor is it a comparison)"),
        ((recording, empty), "holds no trace"),
        ((recording, tmp_path / "missing.json"), "No such file"),
        ((recording, saved), f"{recording} is not a comparison"),
        ((saved, recording), f"{recording} is not a comparison"),
        (("--before", saved, saved, "--after", saved), "one comparison each"),
        ((recording,), "give BEFORE and AFTER"),
        ((recording, recording, recording), "give BEFORE and AFTER"),
        ((recording, "--after", recording), "give BEFORE and AFTER"),
        (("--before", recording), "give BEFORE and AFTER"),
    ):
        assert_refused(program("diff", *map(str, arguments)), words)
