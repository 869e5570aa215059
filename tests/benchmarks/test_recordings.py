"""Recordings are judged: equal ones by all pairs and drawn triples, changes by what is named first,
and limits by what `profile` said.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trust.recordings import (
    DDP,
    LATE,
    LOOP,
    RANKS,
    SAID,
    Pool,
    called_different,
    drawn,
    judged,
    named_first,
)
from parallel_core.traces.profile.recorded_steps import read_recording
from tests.parallel_core.traces.profile.made_up_recordings import Training

USUAL = Training(steps=4)


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pool]:
    path = tmp_path_factory.mktemp("recordings") / "trace.json"

    def recorded(training: Training, count: int) -> Pool:
        return [read_recording(training.record(path, seed)) for seed in range(count)]

    equal = recorded(USUAL, 6)
    return {LOOP: equal, RANKS: equal, LATE: recorded(replace(USUAL, is_late=True), 3)}


def test_equal_recordings_are_no_different_and_a_change_is_named_first(
    pools: dict[str, Pool],
) -> None:
    estimates = {finding.name: finding.interval.estimate for finding in called_different(pools)}
    assert estimates == {
        f"{LOOP}: of 15 pairs called different by time": 0,
        f"{LOOP}: of 15 pairs called different by count": 0,
        f"{LOOP}: of 100 triples called different by time": 0,
        f"{LOOP}: of 100 triples called different by count": 0,
    }
    assert [finding.interval.estimate for finding in named_first(pools)] == [100, 100]


def test_no_recording_is_drawn_on_both_sides(pools: dict[str, Pool]) -> None:
    before, after = drawn(pools[LOOP], pools[LOOP], np.random.default_rng(0))
    assert len({id(recording) for recording in (*before, *after)}) == 6


def test_what_was_said_of_limits_is_counted(tmp_path: Path) -> None:
    recordings = []
    for number, verdict in enumerate(("holds", "broken", "open", "holds")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / SAID).write_text(json.dumps({"requirements": [{"verdict": verdict}]}))
        recordings.append(folder / "profile-1")
    findings = judged({DDP: recordings})
    assert [finding.interval.estimate for finding in findings] == [25, 25]
