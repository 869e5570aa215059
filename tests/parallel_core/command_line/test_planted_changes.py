"""Changes that are planted in a real program are told from its recordings, in both directions.

Load disturbs times, so they are told by counts, and a wait by how long the program sleeps.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from parallel_core.traces.profile.changes import Changes, changes_between
from parallel_core.traces.profile.recorded_steps import Operation, read_recording
from tests.conftest import Require
from tests.parallel_core.command_line.test_profile import profile
from tests.parallel_core.traces.profile.recorded_programs import EXAMPLES

LAYERS, MORE_PRODUCTS, PAUSE = 20, 3, 0.2
STEPS, RANKS = 5, 2


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
def test_exchanges_after_the_pass_in_place_of_during_it_are_counted(
    tmp_path: Path, require: Require
) -> None:
    for direction, changes in both_ways(tmp_path, require, "--late"):
        during, after = (changes.before, changes.after)[::direction]
        assert during.exchanges == after.exchanges == RANKS * STEPS * LAYERS
        # The first layer's is ready when nothing is left to compute.
        assert during.early_exchanges == RANKS * STEPS * (LAYERS - 1)
        assert after.early_exchanges == 0


@pytest.mark.long
def test_more_computing_is_counted_and_named(tmp_path: Path, require: Require) -> None:
    product = Operation("linear", "compute")
    more = f"--more-products={MORE_PRODUCTS}"
    for direction, changes in both_ways(tmp_path, require, more):
        less_side, more_side = (changes.before, changes.after)[::direction]
        assert less_side.operations[product].number == LAYERS
        assert more_side.operations[product].number == LAYERS + MORE_PRODUCTS
        assert less_side.exchanges == more_side.exchanges
        assert changes.verdict != "not comparable"
        assert changes.unmatched.side == more_side.name
        assert product.name in changes.unmatched.names


@pytest.mark.long
def test_a_data_loader_that_waits_is_told_as_waiting(tmp_path: Path, require: Require) -> None:
    for direction, changes in both_ways(tmp_path, require, f"--pause={PAUSE}"):
        largest = max(changes.parts, key=lambda part: abs(part.difference.estimate))
        assert largest.name == "idle_seconds"
        assert direction * largest.difference.estimate > 0.9 * PAUSE
