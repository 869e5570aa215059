"""Batch scaling: a figure for each number of devices, of steps that fit the budget."""

from dataclasses import replace

import pytest

import parallel_core
from backends import Backend
from parallel_core.experiments.runner import trial as trials
from parallel_core.measurement.result import Case
from tests.parallel_core.experiments.small import small

SMALL = small("batch-scaling")
MADE_UP = SMALL["data"]


def test_there_is_a_figure_for_each_number_of_devices(backend: Backend) -> None:
    result = parallel_core.run_batch_scaling(backend, **SMALL)
    names = ("1 device", "2 devices, fixed batch", "2 devices, scaled batch")
    assert [case.name for case in result.cases] == [*names, "all devices, fixed batch", "all devices, scaled batch"]
    assert result.series["devices"] == (1, 2, 3)
    medians = [case.median for case in result.cases]
    one, _, _, fixed, scaled = medians
    speeds, efficiencies = (
        result.series[f"{what} scaled batch"] for what in ("images_per_second", "scaling_efficiency")
    )
    assert speeds == pytest.approx((16 / one, 32 / medians[2], 48 / scaled))
    assert efficiencies[2] == pytest.approx(one / scaled)
    assert result.series["step_seconds fixed batch"][1] == pytest.approx(medians[1] / 2)
    assert result.metrics["fixed_batch_scaling_efficiency"] == pytest.approx(one / fixed / 3)
    assert result.series["scaling_efficiency fixed batch"][-1] == pytest.approx(one / fixed / 3)
    assert result.metrics["scaled_batch_speedup"] == pytest.approx(3 * fixed / scaled)
    assert len({len(values) for values in result.series.values()}) == 1


@pytest.mark.parametrize(("budget", "images", "steps"), [(1e-3, 300, 1), (1e6, 12, 4)])
def test_steps_are_chosen_to_fit_the_budget_and_the_images(
    backend: Backend, budget: float, images: int, steps: int
) -> None:
    data = replace(MADE_UP, train_images=MADE_UP.train_images[:images], train_labels=MADE_UP.train_labels[:images])
    result = parallel_core.run_batch_scaling(backend, data=data, batch_size=1, rounds=1, budget=budget)
    assert result.parameters["steps"] == steps


def test_bare_times_are_of_all_steps_and_devices_with_a_batch_each_not_faster_than_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(takes: dict[str, object], *_: object, **__: object) -> list[Case]:
        assert sum("as one unit" in name for name in takes) == 1 + 2 * 2 + 2 * 3
        seconds = {name: 0.5 if name == "all devices, scaled batch" else 1.0 for name in takes}
        return [Case(name, (each,) * 3, (each,) * 3) for name, each in seconds.items()]

    monkeypatch.setattr(trials, "interleave", timed)
    result = parallel_core.run_batch_scaling(backend, **SMALL)
    assert {case.bare_seconds for case in result.cases} == {(2.0,) * 3}
    (problem,) = result.disturbances
    assert problem.startswith("scaled_batch_scaling_efficiency is 2.00 ")
