"""The rule by which a run chooses its work, on machines that are made up."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
import parallel_core
from backends import Backend
from parallel_core.experiments import EXPERIMENTS, copying, works
from parallel_core.experiments.runner.parameters import Chosen, choose
from parallel_core.experiments.runner.trial import Trial
from tests.parallel_core.experiments.runner.pretended import case, trial
from tests.parallel_core.experiments.small import small

COPYING = [one for one in EXPERIMENTS["overlap"].parameters if isinstance(one, Chosen)]


def chosen(
    backend: Backend, patched: pytest.MonkeyPatch, budget: float = 30.0, speed: float = 1e11, bandwidth: float = 1e10
) -> Any:
    """Choose what `overlap` does where a multiplication and a copy take what their operations and bytes do."""
    patched.setattr(works, "seconds_of_one", lambda _, size, count=1: 2 * size**3 / speed)
    patched.setattr(copying, "_seconds_of_a_copy", lambda *args: (31e-6, 4 * args[2] ** 2 / bandwidth))
    made = Trial(backend, dict.fromkeys(one.name for one in COPYING), budget=budget)
    values, _ = choose(made, COPYING)
    assert values.items() <= made.parameters.items()
    return values, made.described["chosen_by"]


@pytest.mark.parametrize(
    ("machine", "size", "products", "rules"),
    [
        # Issuing takes a tenth of a copy of 3.1 MB.
        ({}, 880, 22, ("issuing", "time")),
        # It does so of smaller ones, too, of which 25 would take less than the usual time.
        ({"bandwidth": 8e9}, 840, 25, ("time", "launches")),
        # It would only of such large ones that the fewest would take longer than usual, or than the budget allows.
        ({"bandwidth": 2e10}, 992, 15, ("time", "time")),
        ({"budget": 5.0}, 656, 15, ("budget", "budget")),
        # A GPU behind a bus: a single copy takes longer than a multiplication.
        ({"bandwidth": 1e9, "speed": 2e12}, 4000, 15, ("equal-parts", "time")),
        ({"bandwidth": 1e9, "speed": 5e12}, 8192, 15, ("largest", "time")),
    ],
)
def test_what_is_multiplied_and_copied_is_chosen_by_one_rule(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    machine: dict[str, float],
    size: int,
    products: int,
    rules: tuple[str, str],
) -> None:
    values, by = chosen(backend, monkeypatch, **machine)
    assert (values["size"], values["products"]) == (size, products)
    assert by == {**dict(zip(("size", "products"), rules, strict=True)), "copies": "equal-parts"}
    copying = 4 * size**2 / machine.get("bandwidth", 1e10)
    assert values["copies"] == max(1, round(2 * size**3 / machine.get("speed", 1e11) / copying))


def test_no_more_copies_are_chosen_than_their_option_takes(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    values, by = chosen(backend, monkeypatch, bandwidth=1e14)
    assert (values["copies"], by["copies"]) == ({one.name: one.maximum for one in COPYING}["copies"], "largest")


@pytest.mark.parametrize(("budget", "rule"), [(30.0, "time"), (2.0, "budget")])
def test_three_rounds_of_parallel_fit_the_budget(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, budget: float, rule: str
) -> None:
    monkeypatch.setattr(works, "seconds_of_one", lambda _, size, count=1: 2 * size**3 / 1e11)
    size, by = works.size_for_run(Trial(backend, {}, budget=budget), 6)
    of_all = works.MULTIPLICATIONS * 2 * size**3 / 1e11
    assert by == rule
    assert works.FEWEST_TIMINGS * 6 * of_all < budget
    assert of_all == pytest.approx(min(0.2, 0.6 * budget / 24), rel=0.05)


@pytest.mark.parametrize(("count", "times"), [(25, 1.0), (3000, 3.0)])
def test_calls_are_those_of_a_thousand_operations_at_the_most(backend: Backend, count: int, times: float) -> None:
    (device, *_), made = backend.devices, Trial(backend, {})
    for work in (
        works.multiplications(made, made.normal(2, device), count, device),
        works.increments(made, made.normal(2, device), count, device),
    ):
        assert (work.times, work.calls and work.calls.times) == (1, times)


@pytest.mark.parametrize(("issued", "is_noted"), [(0.4, False), (0.6, True)])
def test_a_copy_that_is_bound_by_issuing_is_said_not_to_be_a_copy_s_time(
    queueing: Backend, issued: float, is_noted: bool
) -> None:
    made = trial(replace(case("copy", 1.0), dispatch_seconds=(issued,)))
    made.backend = queueing
    copying.note_issuing(made, "copy")
    assert len(made.notes) == is_noted
    made.backend, made.notes = backends.load("numpy", 1), []
    copying.note_issuing(made, "copy")
    assert not made.notes


@pytest.mark.parametrize("engine", ["async", "sync"])
def test_a_sweep_tells_at_each_size_what_hides_and_what_issuing_takes(
    backend: Backend, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "engine", engine)
    result = parallel_core.run_overlap(backend, sizes=(24, 16, 32), products=3, copies=2, rounds=2, budget=600.0)
    assert (result.parameters["size"], result.parameters["sizes"]) == (32, "16,24,32")
    assert result.series["size"] == (16, 24, 32)
    assert len(result.series["copies"]) == 3
    assert result.series["share hidden"][-1] == pytest.approx(result.metrics["overlap_efficiency"])
    assert ("share issuing" in result.series) == (engine == "async")
    run, copy, together = (one for one in result.cases if one.name.endswith("size 16"))
    saved = run.median + copy.median - together.median
    assert result.series["share hidden"][0] == pytest.approx(saved / min(run.median, copy.median))
    assert together.parts == (run.name, copy.name)
    assert "sizes" in parallel_core.run_overlap(backend, size=8, products=2, copies=1, rounds=1).parameters


@pytest.mark.parametrize("engine", ["async", "sync"])
@pytest.mark.parametrize("experiment", ["parallel", "overlap"])
def test_the_price_of_overlap_is_had_where_there_is_a_queue(
    backend: Backend, experiment: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "engine", engine)
    result = EXPERIMENTS[experiment].run(backend, **small(experiment))
    beside = [one.median for one in result.cases if one.name == works.BESIDE]
    assert len(beside) == ("price_of_overlap" in result.metrics) == (engine == "async")
    for seconds in beside:
        assert result.metrics["price_of_overlap"] == pytest.approx(seconds / result.cases[0].median - 1)


@given(st.integers(1, 10**6), st.integers(1, 9), st.sampled_from([2, 4]))
def test_sweeps_double_up_to_the_last_or_grow_by_a_factor(last: int, first: int, factor: int) -> None:
    counts, sizes = works.doublings(last), works.geometric(first, last, factor)
    assert (counts[0], counts[-1], sizes[0]) == (1, last, first)
    assert all(before < after <= 2 * before for before, after in pairwise(counts))
    assert all(after == 2 * before for before, after in pairwise(counts[:-1]))
    assert all(after == factor * before for before, after in pairwise(sizes))
    assert sizes == (first,) or sizes[-1] <= last < factor * sizes[-1]
