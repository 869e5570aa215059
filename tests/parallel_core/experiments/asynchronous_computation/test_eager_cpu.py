"""Eager on a CPU: contrasts are measured elsewhere, one that cannot run is a note, and the sentences follow."""

from collections.abc import Mapping
from typing import Any

import pytest

import parallel_core
from backends import Backend
from parallel_core import Case, MeasurementError, RequestError, Result
from parallel_core.comparison.cells import Cell
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import eager_cpu
from parallel_core.measurement.confidence_intervals import Interval
from tests.parallel_core.comparison import made_up

SMALL: dict[str, Any] = {"size": 40, "against": "none", "rounds": 2, "budget": 600.0}

PAIRS = {(name, engine) for name in ("jax", "mxnet", "numpy", "torch") for engine in ("async", "sync")}


def test_others_are_all_that_are_registered_but_the_backend_itself() -> None:
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

    def elsewhere(experiment: str, options: Mapping[str, str | int]) -> Result:
        asked.append(dict(options))
        cell = Cell(experiment, str(options["backend"]), str(options["engine"]))
        if len(asked) == 1:
            raise RequestError(f"{cell.backend} is not installed")
        if len(asked) == 2:
            raise MeasurementError("it was killed")
        if len(asked) == 3:
            return made_up.result(cell, {"10 products": 1.0}, problems=("made up",))
        return made_up.result(cell, {"10 products": 2.0})

    monkeypatch.setattr(eager_cpu, "measure_elsewhere", elsewhere)
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=1, budget=600.0)
    sides = [f"{options['backend']} {options['engine']}" for options in asked]
    assert len(sides) == len(PAIRS) - 1
    assert f"{backend.name} {backend.engine}" not in sides
    shared = {"devices": 3, "device-kind": "cpu", "threads": 1, "size": 8, "rounds": 1, "against": "none"}
    assert all(shared.items() <= options.items() for options in asked)
    assert [case.name for case in result.cases] == ["10 products", *(f"10 products, {side}" for side in sides[3:])]
    for side in sides[3:]:
        assert result.metrics[f"{side.replace(' ', '_')}_dispatch_fraction"] == pytest.approx(0.1, rel=0.01)
    assert result.notes[-3:] == (
        f"No contrast with {sides[0]}: {asked[0]['backend']} is not installed",
        f"No contrast with {sides[1]}: it was killed",
        f"No contrast with {sides[2]}: its result is invalid: made up",
    )
    assert result.problems == ()


def test_a_contrast_runs_in_a_process_of_its_own(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    # NumPy is installed in any case, and stands against itself too here.
    monkeypatch.setattr(eager_cpu, "contrasts", lambda *_: (("numpy", "sync"),))
    result = parallel_core.run_eager_cpu(backend, size=8, rounds=2, budget=600.0)
    assert [case.name for case in result.cases] == ["10 products", "10 products, numpy sync"]
    assert [len(case.seconds) for case in result.cases] == [2, 2]


def test_products_that_are_wrong_make_the_result_invalid(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_cpu, "error_of_products", lambda *_: float("nan"))
    (problem,) = parallel_core.run_eager_cpu(backend, size=8, against="none", rounds=1, budget=600.0).problems
    assert problem.startswith("products differ from NumPy's by ")


def test_a_comparison_runs_it_without_contrasts() -> None:
    assert {options["against"] for options in EXPERIMENTS["eager-cpu"].options.values()} == {"none"}


def about(value: float) -> Interval:
    """Return a share that is known well."""
    return Interval(value, 0.9 * value, 1.1 * value)


@pytest.mark.parametrize(
    ("fraction", "sentence"),
    [
        (about(0.001), "Asynchrony: control returned after 0.1% (0.09–0.11%)"),
        (about(0.5), "Asynchrony in part: control returned after 50%"),
        (about(1.0), "No asynchrony: control returned after 100%"),
        (Interval(0.2, 0.1, 0.3), "The noise leaves open how far: control returned after 20% (10–30%)"),
    ],
)
def test_whether_asynchrony_was_seen_is_told(fraction: Interval, sentence: str) -> None:
    assert sentence in eager_cpu.verdict(fraction)


def test_the_others_are_sorted_by_what_they_did() -> None:
    fractions = {"a async": about(0.01), "b sync": about(1.0), "b async": about(0.1), "c async": about(0.5)}
    (told,) = eager_cpu.about_contrasts({**fractions, "d sync": Interval(0.9, 0.5, 1.3)})
    assert told == (
        "The same products elsewhere: a async (1%) and b async (10%) queued them; c async (50%) queued them in part; "
        "b sync (100%) had them done when control returned; d sync (90%) did what the noise leaves open."
    )
    assert eager_cpu.about_contrasts({}) == ()


def test_the_times_are_told_in_seconds() -> None:
    assert eager_cpu.about_times(Case("any", (0.2,), (0.001,)), 1000) == (
        "Control was back after 1.00 ms, and the 10 products of 1000 × 1000 matrices were done after 200 ms."
    )


@pytest.mark.parametrize(
    ("fraction", "words"),
    [
        (about(0.001), "queues nothing (--engine sync)"),
        (about(1.0), "Larger products (--size 2000)"),
        (Interval(0.2, 0.1, 0.3), "--rounds 20 --budget 60"),
    ],
)
def test_what_would_change_it_follows_from_the_share(queueing: Backend, fraction: Interval, words: str) -> None:
    assert words in eager_cpu.what_would_change(queueing, fraction)


def test_variants_are_told_to_be_no_contrast_s() -> None:
    assert eager_cpu.about_variants(("bulk-on",), ("torch async", "mxnet sync")) == (
        "torch async and mxnet sync ran without bulk-on.",
    )
    assert eager_cpu.about_variants(("bulk-on",), ()) == eager_cpu.about_variants((), ("torch async",)) == ()
