"""`async` answers all its questions: dispatch, waiting, increments and their model, and a deep queue's memory."""

from collections.abc import Callable

import pytest

import parallel_core
from backends import Backend, Device
from backends.arrays import tree_leaves
from backends.devices import DeviceKind
from parallel_core.experiments import works
from parallel_core.experiments.asynchronous_computation import increments
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.runner.trial import Trial
from tests.parallel_core.experiments.runner.pretended import case
from tests.parallel_core.experiments.small import small


def test_it_answers_all_its_questions(backend: Backend) -> None:
    result = parallel_core.run_async(backend, **small("async"))
    assert set(result.bands) == {"dispatch_fraction", "wait_fraction", "t2_over_t1"}
    blockers = {f"product, to {what}" for what in ("NumPy", "a number", "text")}
    increments = {f"increments{how}" for how in (", waiting each time", ", waiting once", " in one launch")}
    waits = {"wait for one result", "waitall"}
    assert {one.name for one in result.cases} == {"10 products in NumPy", "10 products", *waits, *blockers, *increments}
    # A hundred arrays of 4 MiB: those that are kept must be there.
    assert result.metrics["peak_bytes_kept_waiting_every_100"] > 0.8 * 100 * 2**22
    cases = {one.name: one for one in result.cases}
    assert result.metrics["measured_once_seconds"] == cases["increments, waiting once"].median
    sent, done = (getattr(cases["10 products"], which) for which in ("dispatch_median", "median"))
    assert result.metrics["dispatch_fraction"] == pytest.approx(sent / done)


def test_steps_and_size_are_chosen_to_suit_the_budget(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "SIDE", 8)
    parameters = parallel_core.run_async(backend, rounds=1, budget=1e-9).parameters
    assert (parameters["size"], parameters["steps"]) == (8, 100)


def test_the_cost_model_repeats_the_slower_side() -> None:
    short, long = case("short", 1.0), case("long", 3.0)
    device_bound, python_bound = CostModel(short, long, 2.0), CostModel(long, short, 2.0)
    assert device_bound.waiting_once(10) == device_bound.waiting_once_by_the_book(10) == 1 + 10 * 3 + 2
    assert python_bound.waiting_once(10) == 10 * 3 + 1 + 2
    assert python_bound.waiting_once_by_the_book(10) == 3 + 10 + 2
    assert device_bound.waiting_each(10) == python_bound.waiting_each(10) == 60
    assert device_bound.t2_over_t1.estimate == pytest.approx(3)


def test_what_is_compiled_makes_increments_as_units_that_keep_each(load_any: Callable[[int], Backend]) -> None:
    trial = Trial(load_any(1), {})
    x = works.ones(trial, trial.devices[0])
    once = works.increments(trial, x, 7, trial.devices[0])
    (made,) = tree_leaves(trial.backend.to_numpy(increments.in_one_launch(trial, x, once, 7).launch()))
    # All begin with the same value, or each with the one before.
    assert made.item() == (1 + 7 if trial.backend.name == "jax" else 1 + 1)


@pytest.mark.parametrize(("kind", "figures"), [("cpu", 6), ("gpu", 0)])
def test_memory_is_measured_after_a_warm_up_and_where_the_host_holds_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, kind: DeviceKind, figures: int
) -> None:
    launched: list[int] = []
    monkeypatch.setattr(increments, "incremented", lambda *args: launched.append(args[2]) or args[1])
    monkeypatch.setattr(increments, "peak_memory_growth", lambda _: len(launched))
    trial = Trial(backend, {})
    trial.devices = [Device(kind, 1)]
    increments.measure_memory(trial)
    assert [figure.estimate for figure in trial.figures.values()] == [1] * figures
