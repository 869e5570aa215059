"""What is printed of changes: the step first, all on a screen of 24 lines."""

from dataclasses import replace
from pathlib import Path

import pytest

from parallel_core.terminal.changes import show_changes
from parallel_core.traces.profile.changes import changes_between
from parallel_core.traces.profile.recorded_steps import read_recording
from tests.parallel_core.terminal.printed import in_words, printed
from tests.parallel_core.traces.profile.made_up_recordings import Training

USUAL = Training()
LATE_AND_SLOWER = replace(USUAL, is_late=True, computing=1.4, layers=5)


def shown(folder: Path, before: Training, after: Training, width: int = 80) -> str:
    """Print the changes between three recordings each."""
    sides = []
    for training, seeds in ((before, range(3)), (after, range(3, 6))):
        paths = [training.record(folder / f"{seed}.json", seed) for seed in seeds]
        sides.append([read_recording(path) for path in paths])
    return printed(show_changes, changes_between(*sides), width=width)


@pytest.mark.parametrize("width", [80, 120])
def test_all_of_it_fits_a_screen(width: int, tmp_path: Path) -> None:
    screen = shown(tmp_path, USUAL, LATE_AND_SLOWER, width).rstrip("\n").splitlines()
    assert max(map(len, screen)) <= width
    assert len(screen) <= 24
    text = in_words("\n".join(screen))
    for words in (
        "A step takes ",
        " before after change ",
        " computing 2",
        " exchange only 3.",
        " a step 28.",
        "launched before the pass is over 3 → 0, addmm backward 4 → 5, all_reduce 4 → 5. ",
        " hidden exchange 7",
        " 4 → 5 × addmm backward ",
        "· no longer: all_reduce: its backward pass had nothing left",
        "· now: all_reduce: it is launched after the backward pass",
    ):
        assert words in text


def test_what_did_not_change_is_not_listed(tmp_path: Path) -> None:
    text = in_words(shown(tmp_path, USUAL, USUAL))
    assert text.startswith("No difference is shown: less than ")
    for words in ("copies only", "By count", "×", "no longer"):
        assert words not in text


def test_how_long_each_side_waited_for_a_core_is_said_if_they_differ(tmp_path: Path) -> None:
    recording = read_recording(USUAL.record(tmp_path / "trace.json", 0))
    loaded = replace(recording, core_wait_share=0.4)
    text = in_words(printed(show_changes, changes_between([recording], [loaded])))
    assert "For 0 % of the time before, and 40 % after, the busiest thread waited" in text
    assert "waited for a core" not in printed(show_changes, changes_between([loaded], [loaded]))


def test_of_programs_that_differ_only_that_is_printed(tmp_path: Path) -> None:
    text = shown(tmp_path, USUAL, replace(USUAL, layers=9), 200)
    assert text.count("\n") == 1
