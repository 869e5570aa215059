"""`eager-cpu` is contrasted with what else is installed, and what cannot be measured elsewhere is a
note.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import parallel_core
from backends import Backend
from backends.installation.frameworks import is_installed
from parallel_core import RequestError, Result
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import (
    eager_cpu,
)
from parallel_core.experiments.runner import trial as trials
from parallel_core.measurement.result import Counted
from tests.parallel_core.comparison import made_up

KNOWN = {
    (name, engine) for name in ("jax", "mxnet", "numpy", "torch") for engine in ("async", "sync")
}
PAIRS = {(name, engine) for name, engine in KNOWN if is_installed(name)}


def test_others_are_all_that_are_installed_but_the_backend_itself_and_a_comparison_has_none() -> (
    None
):
    assert {options["against"] for options in EXPERIMENTS["eager-cpu"].options.values()} == {"none"}
    others = {(name, engine) for name, engine in PAIRS if name != "numpy"}
    assert set(eager_cpu.contrasts("others", ("torch", "sync"))) == others - {("torch", "sync")}
    if is_installed("torch"):
        first, second = eager_cpu.contrasts("others", ("numpy", "sync"))[:2]
        assert (first, second) == (("torch", "sync"), ("torch", "async"))
    assert eager_cpu.contrasts("none", ("torch", "sync")) == ()
    named = eager_cpu.contrasts("numpy:sync, mxnet:async,numpy:sync", ("torch", "sync"))
    assert named == (("numpy", "sync"), ("mxnet", "async"))


def test_contrasts_are_measured_alike_and_failures_are_notes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def elsewhere(experiment: str, options: Mapping[str, Any]) -> Result:
        asked.append(dict(options))
        cell = Cell(experiment, str(options["backend"]), str(options["engine"]))
        if len(asked) <= 2:
            raise RequestError("it is not installed")
        problems = ("made up",) if len(asked) == 3 else ()
        return made_up.result(cell, {"10 products": 2.0}, problems=problems)

    monkeypatch.setattr(trials, "measure_elsewhere", elsewhere)
    pairs = {
        (name, engine) for name, engine in KNOWN if (name, engine) != (backend.name, backend.engine)
    }
    against = ",".join(f"{name}:{engine}" for name, engine in sorted(pairs))
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=1, budget=600.0, against=against)
    sides = [f"{options['backend']} {options['engine']}" for options in asked]
    assert len(sides) == len(KNOWN) - 1
    assert f"{backend.name} {backend.engine}" not in sides
    same = {
        "devices": 3,
        "device-kind": "cpu",
        "threads": 1,
        "size": 8,
        "rounds": 1,
        "against": "none",
        "variant": (),
    }
    assert all(same.items() <= options.items() for options in asked)
    assert all(0 < options["budget"] < 600 for options in asked)
    assert [case.name for case in result.cases] == [
        "10 products",
        *(f"10 products, {side}" for side in sides[3:]),
    ]
    for side in sides[3:]:
        assert result.metrics[f"{side.replace(' ', '_')}_dispatch_fraction"] == pytest.approx(
            0.1, rel=0.01
        )
    assert result.notes[0] == f"No contrast with {sides[0]} (+2): it is not installed"
    assert not [note for note in result.notes[1:] if "contrast" in note]
    assert result.problems == ()


@pytest.mark.parametrize(("engine", "seen"), [("sync", 0), ("async", 10)])
def test_a_contrast_answers_by_its_count(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, engine: str, seen: int
) -> None:
    def elsewhere(experiment: str, _: Mapping[str, Any]) -> Result:
        found = made_up.result(Cell(experiment, "torch", engine), {"10 products": 2.0})
        counted = Counted(seen, 10, "torch's profiler", (seen,))
        return replace(found, counts={"unfinished_at_return": counted})

    monkeypatch.setattr(trials, "measure_elsewhere", elsewhere)
    against = f"torch:{engine}"
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=2, budget=600.0, against=against)
    name = f"torch_{engine}_unfinished_at_return"
    assert result.counts[name].count == seen
    assert result.bands[name] == ("queued" if seen else "not-queued")


@pytest.mark.usefixtures("in_process")
def test_a_contrast_is_asked_for_as_the_command_takes_it(backend: Backend) -> None:
    result = parallel_core.run_eager_cpu(
        backend, size=8, against="torch:sync", rounds=2, budget=600.0
    )
    assert [case.name for case in result.cases] == ["10 products", "10 products, torch sync"]
    assert [len(case.seconds) for case in result.cases] == [2, 2]
