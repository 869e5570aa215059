"""Planted faults: their backends are right but for the fault, and what is counted of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from backends.registry.files import FILES
from benchmarks.trust import planted_faults
from benchmarks.trust.planted_backends import OVER, OneQueue, Planted
from benchmarks.trust.planted_faults import FAULTS, counts, judged, plant
from parallel_core.compare.results import Cell
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.request import Request
from parallel_core.measurement.result import Result
from tests.parallel_core.compare.made_up import result
from tests.parallel_core.compare.test_time_differences import PARTS, made_of

BACKENDS = [fault.backend for fault in FAULTS.values()]


@pytest.mark.parametrize("planted", BACKENDS)
def test_a_backend_with_a_fault_computes_what_numpy_does(
    planted: type[Planted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVER, "numpy")
    backend = planted(2, "cpu", "sync", 1)
    assert backend.name == planted.__name__
    first_device = backend.devices[0]
    matrix = np.arange(4, dtype=np.float32).reshape(2, 2)
    for device in backend.devices:
        x = backend.asarray(matrix, device)
        if planted is OneQueue:
            product = backend.ops.matmul(x, x)
        else:
            product = backend.launch(backend.ops.matmul, x, x)
        np.testing.assert_array_equal(backend.to_numpy(product), matrix @ matrix)
        copy = backend.copy_to(x, first_device)
        np.testing.assert_array_equal(backend.to_numpy(copy), matrix)


def test_processes_find_the_backends_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # They are set again by what is tested, and taken away at the end.
    for variable in (OVER, FILES):
        monkeypatch.setenv(variable, "")
    plant("numpy")
    options = {"backend": "Twice", "engine": "sync", "size": 8, "rounds": 1}
    measured = measure_elsewhere("parallel", options)
    assert measured.backend["name"] == "Twice"
    assert measured.problems == ()


PARALLEL = Cell("parallel", "torch", "async")


@pytest.fixture
def judgement() -> dict[str, Any]:
    """What is said of a fault by which all operations of a second take 0.6 s more."""
    without_fault = made_of(PARALLEL, 1.0, PARTS)
    with_fault = made_of(PARALLEL, 1.6, PARTS | {"operations": 1.2})
    return judged("twice", with_fault.results, {"parallel": without_fault})


def test_the_part_that_grew_is_named(judgement: dict[str, Any]) -> None:
    assert judgement["named"] == ["operations"]
    assert judgement["longer_seconds"] == pytest.approx(0.6, rel=0.01)
    assert judgement["seconds"] == pytest.approx(judgement["planted_seconds"], rel=0.01)


def test_trials_are_counted_in_which_the_planted_part_was_named(judgement: dict[str, Any]) -> None:
    named_in_trials = (["operations"], ["operations", "rest"], ["rest", "operations"], [])
    trials = []
    for named in named_in_trials:
        of_trial = {**judgement, "named": named}
        trials.append(dict.fromkeys(FAULTS, of_trial))
    rows = dict(zip(FAULTS, counts(trials), strict=True))
    assert rows["twice"][2:4] == ["2 of 4", "2 of 4"]


def test_no_process_measures_an_experiment_twice_and_the_first_one_has_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_in_rounds: list[list[list[tuple[str, str]]]] = []

    def measured(asked: Sequence[Mapping[int, Request]]) -> list[list[Result]]:
        processes, results_of_processes = [], []
        for requests in asked:
            work = [request.work for request in requests.values()]
            processes.append([(part.experiment, part.backend) for part in work])
            cells = [Cell(part.experiment, "any", "async") for part in work]
            results_of_processes.append([result(cell, {"a": 1.0}) for cell in cells])
        asked_in_rounds.append(processes)
        return results_of_processes

    monkeypatch.setattr(planted_faults, "measured_in_turns", measured)
    monkeypatch.setattr(planted_faults, "judged", lambda name, results, _: (name, len(results)))
    faults = ["one-queue", "twice", "slow-launches"]
    judged_faults = planted_faults.trial("numpy", 2, faults)
    assert judged_faults == {name: (name, 2) for name in faults}
    processes = [
        [("parallel", "numpy"), ("async", "numpy")],
        [("parallel", "OneQueue"), ("async", "SlowLaunches")],
        [("parallel", "Twice")],
    ]
    assert asked_in_rounds == [processes, processes]
