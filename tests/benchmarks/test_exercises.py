"""What is kept of a run of an exercise, whatever became of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.experiments import exercises
from parallel_core.system.subprocesses import Outcome
from tests.parallel_core.comparison.made_up import parallel, result


def test_a_result_is_kept_with_its_problems_and_without_raw_values(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = result(parallel("torch"), {"on all together": 1.0}, problems=("It cannot be.",))
    asked: list[str] = []

    async def measure(command: Sequence[str], *_: object) -> Outcome:
        asked[:] = command
        Path(command[command.index("--json") + 1]).write_text(json.dumps(measured.as_json()))
        return Outcome(1, "A table\n", "", timed_out=False)

    monkeypatch.setattr(exercises, "supervise", measure)
    kept = exercises.run_once("independent-ops", "torch sync")
    assert " ".join(asked[5:]).startswith("parallel_core run independent-ops --backend torch --engine sync --json ")
    assert kept["problems"] == ["It cannot be."]
    assert (kept["cases"], "environment" in kept, "printed" in kept) == ([], False, False)
    assert exercises.run_once(exercises.SHOWN, "torch")["cases"]
    assert exercises.run_once(exercises.TRACED, "torch")["printed"] == ["A table"]
    assert "--trace" in asked


def test_a_run_without_a_result_is_kept_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> Outcome:
        return Outcome(2, "", "parallel-core: not installed\n", timed_out=False)

    monkeypatch.setattr(exercises, "supervise", refuse)
    assert exercises.run_once("overlap", "jax") == {"failed": "not installed"}
