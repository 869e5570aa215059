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
    ("lab", "experiment_name", "code_without_queue"),
    [
        ("queue", "eager-cpu", "not-queued"),
        ("two-queues", "parallel", "serial"),
        ("hide-a-copy", "overlap", "serial"),
    ],
)
def test_an_engine_s_own_clocks_tell_a_queue_from_none(
    monkeypatch: pytest.MonkeyPatch, lab: str, experiment_name: str, code_without_queue: str
) -> None:
    experiment = EXPERIMENTS[experiment_name]
    count = experiment.counts[0]

    def code_with(engine_file: Path) -> str | None:
        """Run the experiment on an engine of a file, and return what its count means."""
        monkeypatch.setitem(os.environ, FILES, "")
        backend = backends.load(named(f"{engine_file}:MyEngine"), 2, "cpu", None, 1)
        result = experiment.run(backend, rounds=1, budget=600.0, **SMALL[experiment_name])
        # The clock may have its own notes, on a busy machine.
        assert not any(note.startswith("Nothing was counted") for note in result.notes)
        assert result.counts[count.name].of > 0
        return result.bands[count.name]

    assert code_with(SKELETONS / lab / "engine.py") == code_without_queue
    assert code_with(Path(solution.__file__)) != code_without_queue


def test_what_has_neither_a_profiler_nor_clocks_has_no_witness() -> None:
    assert witness_for(backends.load("numpy", 2, "cpu", None, 1)) is None
