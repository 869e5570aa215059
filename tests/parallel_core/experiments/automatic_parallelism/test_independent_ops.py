"""Independent operations: what is run where, values that are checked, and figures that compare cases."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import backends
import parallel_core
from backends import Backend
from parallel_core import RequestError, Result
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.conclusions import answer_of

Elsewhere = list[dict[str, Any]]


def run(backend: Backend, workers: tuple[int, ...] = (1, 2), rounds: int = 1) -> Result:
    return parallel_core.run_independent_ops(backend, workers_compared=workers, size=48, rounds=rounds, budget=600.0)


@pytest.mark.parametrize("engine", ["async", "sync"])
def test_workers_and_threads_that_a_backend_has_not_are_measured_elsewhere(
    backend: Backend, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(backend, "variants", ("bulk-on", "temporary-space-low"))
    monkeypatch.setattr(backend, "engine", engine)
    result = run(backend, rounds=2)
    names = [case.name for case in result.cases]
    here, threaded = ["independent, 1 worker", "chain, 1 worker"], "independent, 1 worker, 2 threads each"
    several = ["independent, 2 workers", "chain, 2 workers"] if engine == "async" else []
    assert names == [*here, *several, threaded, "chain, 1 worker, 2 threads each"]
    assert result.parameters["workers"] == ("1,2" if several else "1")
    assert [(asked["workers"], asked["threads"]) for asked in elsewhere] == [(2, 1), (1, 2)][-len(names) // 2 + 1 :]
    # One device's products, of the same size, and no separate processes.
    for asked in elsewhere:
        assert (asked["devices"], asked["size"], asked["workers-compared"]) == (1, 48, asked["workers"])
        assert (asked["backend"], asked["engine"], asked["variant"]) == (backend.name, engine, backend.variants)
    medians = {case.name: case.median for case in result.cases}
    by_most = several or here
    compared = {
        **({"parallel_speedup": (here[0], several[0]), "chain_speedup": (here[1], several[1])} if several else {}),
        "independence_speedup": (here[1], here[0]),
        "independence_speedup_most_workers": (by_most[1], by_most[0]),
        "threads_speedup": (here[0], threaded),
    }
    expected = {name: medians[slow] / medians[fast] for name, (slow, fast) in compared.items()}
    assert result.metrics == pytest.approx(expected)
    # The pretended ones' error is larger than the own one.
    assert result.checks["max_relative_error"] == 0.5e-5
    # Before the processes and after them.
    assert {case.name: len(case.seconds) for case in result.cases[:2]} == dict.fromkeys(here, 4)


def test_one_number_of_workers_starts_no_process(backend: Backend, elsewhere: Elsewhere) -> None:
    result = run(backend, (1,), rounds=2)
    assert elsewhere == []
    assert [case.name for case in result.cases] == ["independent, 1 worker", "chain, 1 worker"]
    # Nothing is compared, so nothing is said of it.
    assert result.metrics.keys() == {"independence_speedup", "independence_speedup_most_workers"}
    assert result.bands.keys() == {"independence_speedup"}


def test_a_number_of_workers_that_is_refused_is_a_note(queueing: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Result:
        raise RequestError("use --workers 1")

    monkeypatch.setattr(trials, "measure_elsewhere", refuse)
    result = run(queueing, rounds=2)
    assert [case.name for case in result.cases] == ["independent, 1 worker", "chain, 1 worker"]
    assert result.parameters["workers"] == "1"
    assert sum(note.endswith("use --workers 1") for note in result.notes) == 2
    assert "parallel_speedup" not in result.metrics
    experiment = EXPERIMENTS[result.experiment]
    # Where more cannot be had, they are no advice.
    for name, can_have_more in (("torch", True), ("jax", False)):
        there = replace(result, backend={**result.backend, "name": name})
        answer = answer_of(experiment.metrics, experiment.changes, there)
        assert ("--workers-compared" in answer.would_change) == can_have_more


@pytest.mark.usefixtures("in_process")
def test_other_threads_are_asked_for_as_the_command_takes_them(load: Callable[[int], Backend]) -> None:
    assert len(run(load(2), rounds=2).cases) == 4


@pytest.mark.long
def test_the_other_workers_really_run_in_fresh_processes(require: Callable[[str], None]) -> None:
    require("torch")
    result = run(backends.load("torch", 2, "cpu", None, 1), rounds=2)
    assert len(result.cases) == 6
    assert set(result.problems) <= set(result.disturbances)
