"""What is kept of a run of an exercise, whatever became of it."""

import pytest

from benchmarks.experiments import exercises
from parallel_core.system.errors import RequestError
from tests.parallel_core.comparison.made_up import parallel, result


def test_a_result_is_kept_with_its_problems_and_without_raw_values(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = result(parallel("torch"), {"on all together": 1.0}, problems=("It cannot be.",))
    asked = []
    monkeypatch.setattr(exercises, "measure_elsewhere", lambda *what: asked.append(what) or measured)
    kept = exercises.run_once("overlap", "torch sync")
    assert asked == [("overlap", {"backend": "torch", "engine": "sync"}, exercises.DEADLINE)]
    assert kept["problems"] == ["It cannot be."]
    assert (kept["cases"], "environment" in kept) == ([], False)
    assert exercises.run_once(exercises.SHOWN, "torch")["cases"]


def test_a_run_without_a_result_is_kept_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RequestError("not installed")

    monkeypatch.setattr(exercises, "measure_elsewhere", refuse)
    assert exercises.run_once("overlap", "jax") == {"failed": "not installed"}
