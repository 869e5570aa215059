"""Eager on a CPU: the others are measured elsewhere with the same options, and one that cannot run is a note."""

from collections.abc import Mapping
from typing import Any

import pytest

import parallel_core
from backends import Backend
from parallel_core import MeasurementError, RequestError, Result
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import eager_cpu
from parallel_core.experiments.runner import trial as trials
from tests.parallel_core.comparison import made_up

PAIRS = {(name, engine) for name in ("jax", "mxnet", "numpy", "torch") for engine in ("async", "sync")}


def test_others_are_all_that_are_registered_but_the_backend_itself_and_a_comparison_has_none() -> None:
    assert {options["against"] for options in EXPERIMENTS["eager-cpu"].options.values()} == {"none"}
    assert set(eager_cpu.contrasts("others", ("torch", "sync"))) == PAIRS - {("torch", "sync")}
    assert eager_cpu.contrasts("none", ("torch", "sync")) == ()
    named = eager_cpu.contrasts("numpy:sync, mxnet:async,numpy:sync", ("torch", "sync"))
    assert named == (("numpy", "sync"), ("mxnet", "async"))


@pytest.mark.parametrize(
    ("against", "message"),
    [
        ("torch", r"^unknown contrast 'torch' \(known: others, none, jax:async, "),
        ("torch:eager", "unknown contrast 'torch:eager'"),
        ("numpy:sync,", "unknown contrast ''"),
        ("numpy:sync,torch:sync", "'torch:sync' is what is measured"),
    ],
)
def test_contrasts_that_cannot_be_are_refused(against: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        eager_cpu.contrasts(against, ("torch", "sync"))


def test_contrasts_are_measured_alike_and_failures_are_notes(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def elsewhere(experiment: str, options: Mapping[str, Any]) -> Result:
        asked.append(dict(options))
        cell = Cell(experiment, str(options["backend"]), str(options["engine"]))
        if len(asked) == 1:
            raise RequestError(f"{cell.backend} is not installed")
        if len(asked) == 2:
            raise MeasurementError("it was killed")
        problems = ("made up",) if len(asked) == 3 else ()
        return made_up.result(cell, {"10 products": 2.0}, problems=problems)

    monkeypatch.setattr(trials, "measure_elsewhere", elsewhere)
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=1, budget=600.0)
    sides = [f"{options['backend']} {options['engine']}" for options in asked]
    assert len(sides) == len(PAIRS) - 1
    assert f"{backend.name} {backend.engine}" not in sides
    same = {"devices": 3, "device-kind": "cpu", "threads": 1, "size": 8, "rounds": 1, "against": "none", "variant": ()}
    assert all(same.items() <= options.items() for options in asked)
    assert all(0 < options["budget"] < 600 for options in asked)
    assert [case.name for case in result.cases] == ["10 products", *(f"10 products, {side}" for side in sides[3:])]
    for side in sides[3:]:
        assert result.metrics[f"{side.replace(' ', '_')}_dispatch_fraction"] == pytest.approx(0.1, rel=0.01)
    assert result.notes[:3] == (
        f"No contrast with {sides[0]}: {asked[0]['backend']} is not installed",
        f"No contrast with {sides[1]}: it was killed",
        f"No contrast with {sides[2]}: its result is invalid: made up",
    )
    assert result.problems == ()


@pytest.mark.usefixtures("in_process")
def test_a_contrast_is_asked_for_as_the_command_takes_it(backend: Backend) -> None:
    result = parallel_core.run_eager_cpu(backend, size=8, against="torch:sync", rounds=2, budget=600.0)
    assert [case.name for case in result.cases] == ["10 products", "10 products, torch sync"]
    assert [len(case.seconds) for case in result.cases] == [2, 2]
