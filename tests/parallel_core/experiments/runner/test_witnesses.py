"""Without a profiler, clocks around calls and operations see the order in which they came."""

import os
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.registry.files import FILES, named
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.witnesses import witness_for
from parallel_core.labs.programs import __file__ as programs
from tests.parallel_core.labs import solution

SKELETONS = Path(programs).parent
SMALL: dict[str, dict[str, Any]] = {
    "eager-cpu": {"size": 200, "against": "none"},
    "parallel": {"size": 500},
    "overlap": {"size": 500, "products": 10, "copies": 10},
}


@pytest.mark.parametrize(
    ("engine", "experiment", "code"),
    [
        ("queue", "eager-cpu", "not-queued"),
        ("two-queues", "parallel", "serial"),
        ("hide-a-copy", "overlap", "serial"),
    ],
)
def test_an_engine_s_own_clocks_tell_a_queue_from_none(
    monkeypatch: pytest.MonkeyPatch, engine: str, experiment: str, code: str
) -> None:
    count = EXPERIMENTS[experiment].counts[0]
    codes = []
    for file in (SKELETONS / engine / "engine.py", Path(solution.__file__)):
        monkeypatch.setitem(os.environ, FILES, "")
        backend = backends.load(named(f"{file}:MyEngine"), 2, "cpu", None, 1)
        result = EXPERIMENTS[experiment].run(backend, rounds=1, budget=600.0, **SMALL[experiment])
        # The clock may have its own notes, on a busy machine.
        assert not any(note.startswith("Nothing was counted") for note in result.notes)
        assert result.counts[count.name].of > 0
        codes.append(result.bands[count.name])
    assert codes[0] == code != codes[1]


def test_what_has_neither_a_profiler_nor_clocks_has_no_witness() -> None:
    assert witness_for(backends.load("numpy", 2, "cpu", None, 1)) is None
