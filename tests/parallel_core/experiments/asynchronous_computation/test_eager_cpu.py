"""`eager-cpu` is contrasted with what else is installed, and what cannot be measured elsewhere is a
note.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

import parallel_core
from backends import Backend
from backends.installation.frameworks import is_installed
from parallel_core import RequestError, Result
from parallel_core.compare.results import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import eager_cpu
from parallel_core.experiments.runner import trial as trials
from parallel_core.experiments.runner.trial import not_measured
from parallel_core.measurement.result import Counted, Note
from tests.parallel_core.compare import made_up

QUEUEING_SIDES = list(product(("jax", "mxnet", "torch"), ("async", "sync")))
"""Each framework that can queue, with each of its engines."""


def test_others_are_all_that_are_installed_but_the_backend_itself() -> None:
    torch = ("torch", "sync")
    installed_sides = {(name, engine) for name, engine in QUEUEING_SIDES if is_installed(name)}
    assert set(eager_cpu.contrasts("others", torch)) == installed_sides - {torch}
    if is_installed("torch"):
        first, second, *_ = eager_cpu.contrasts("others", ("numpy", "sync"))
        assert first == ("torch", "sync")
        assert second == ("torch", "async")


def test_a_comparison_has_no_contrasts() -> None:
    for options in EXPERIMENTS["eager-cpu"].options.values():
        assert options["against"] == "none"


def test_contrasts_are_measured_alike_and_failures_are_notes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_sides: list[tuple[str, str]] = []
    options_of_all = {
        "devices": 3,
        "device_kind": "cpu",
        "threads": 1,
        "size": 8,
        "rounds": 1,
        "against": "none",
        "variant": (),
    }

    def measure_elsewhere(experiment: str, options: Mapping[str, Any]) -> Result:
        """Refuse the first two processes, and let the third one's result be invalid."""
        assert options_of_all.items() <= options.items()
        assert 0 < options["budget"] < 600
        side = str(options["backend"]), str(options["engine"])
        asked_sides.append(side)
        if len(asked_sides) <= 2:
            raise RequestError("it is not installed")
        problems = (Note(None, "made up"),) if len(asked_sides) == 3 else ()
        return made_up.result(Cell(experiment, *side), {"10 products": 2.0}, problems=problems)

    monkeypatch.setattr(trials, "measure_elsewhere", measure_elsewhere)
    monkeypatch.setattr(eager_cpu, "is_installed", lambda _: True)
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=1, budget=600.0)

    assert sorted(asked_sides) == QUEUEING_SIDES
    _own, *contrasts = result.cases
    for case, (name, engine) in zip(contrasts, asked_sides[3:], strict=True):
        assert case.name == f"10 products, {name} {engine}"
        fraction = result.metrics[f"{name}_{engine}_dispatch_fraction"]
        assert fraction == pytest.approx(0.1, rel=0.01)

    first_refused = " ".join(asked_sides[0])
    refusals = not_measured(f"contrast with {first_refused} (+2)", "it is not installed")
    assert [note for note in result.notes if note.code == "not-measured"] == [refusals]
    assert result.problems == ()


@pytest.mark.parametrize(
    ("engine", "unfinished", "code"), [("sync", 0, "not-queued"), ("async", 10, "queued")]
)
def test_a_contrast_answers_by_its_count(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, engine: str, unfinished: int, code: str
) -> None:
    cell = Cell("eager-cpu", "torch", engine)
    counts = {"unfinished_at_return": Counted(unfinished, 10, "a profiler", (unfinished,))}
    on_torch = replace(made_up.result(cell, {"10 products": 2.0}), counts=counts)
    monkeypatch.setattr(trials, "measure_elsewhere", lambda *_: on_torch)
    monkeypatch.setattr(eager_cpu, "is_installed", lambda name: name == "torch")
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=2, budget=600.0)
    name = f"torch_{engine}_unfinished_at_return"
    assert result.counts[name].count == unfinished
    assert result.bands[name] == code


@pytest.mark.usefixtures("in_process")
def test_a_contrast_is_asked_for_as_the_command_takes_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_cpu, "is_installed", lambda name: name == "torch")
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=2, budget=600.0)
    timings = {case.name: len(case.seconds) for case in result.cases}
    assert timings == {
        "10 products": 2,
        "10 products, torch sync": 2,
        "10 products, torch async": 2,
    }
