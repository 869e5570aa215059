"""Changes that are planted in a real program are told from its recordings, in both directions.

Load disturbs times, so they are told by counts, and a wait by how long the program sleeps.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from parallel_core.traces.profile.changes import Changes, changes_between
from parallel_core.traces.profile.recorded_steps import read_recording
from parallel_core.traces.profile.requirements import EARLY
from tests.conftest import Require
from tests.parallel_core.command_line.test_profile import profile
from tests.parallel_core.traces.profile.recorded_programs import EXAMPLES

LAYERS, PAUSE = 6, 0.2


def both_ways(tmp_path: Path, require: Require, *planted: str) -> Iterator[tuple[int, Changes]]:
    """Record the program with a change and without, and compare both ways; a number is 1 where the
    change is made, and −1 where it is undone.
    """
    require("torch")
    recordings = []
    for name, options in (("usual", ()), ("changed", planted)):
        folder = tmp_path / name
        folder.mkdir()
        done = profile(folder, "--", EXAMPLES / "changed_torch.py", *options)
        assert done.returncode == 0, done.stderr
        (recording,) = (path for path in folder.iterdir() if path.is_dir())
        recordings.append(read_recording(recording))
    usual, changed = recordings
    yield 1, changes_between([usual], [changed])
    yield -1, changes_between([changed], [usual])


@pytest.mark.long
@pytest.mark.parametrize(
    ("planted", "name", "usual", "changed"),
    [
        # The first layer's gradient is ready when nothing is left to compute.
        (("--late",), EARLY, LAYERS - 1, 0),
        (("--more-products", "1"), "linear", LAYERS, LAYERS + 1),
    ],
    ids=["exchanges after the pass", "a product more"],
)
def test_a_change_is_counted(
    planted: tuple[str, ...],
    name: str,
    usual: int,
    changed: int,
    tmp_path: Path,
    require: Require,
) -> None:
    for direction, changes in both_ways(tmp_path, require, *planted):
        assert changes.verdict != "not comparable"
        counts = {change.name: (change.before, change.after) for change in changes.counted}
        assert counts[name] == (usual, changed)[::direction]
        assert name == EARLY or EARLY not in counts


@pytest.mark.long
def test_a_data_loader_that_waits_is_told_as_waiting(tmp_path: Path, require: Require) -> None:
    for direction, changes in both_ways(tmp_path, require, "--pause", str(PAUSE)):
        largest = max(changes.parts, key=lambda part: abs(part.difference.estimate))
        assert largest.name == "idle_seconds"
        assert direction * largest.difference.estimate > 0.9 * PAUSE
