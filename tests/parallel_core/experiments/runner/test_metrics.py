"""A metric follows from the times that its formula touches, and means what the band of its whole interval says."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, interval_of
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Result
from tests.parallel_core.comparison.made_up import parallel, result
from tests.parallel_core.experiments.runner.pretended import case

HALF = Metric("half", lambda times: times["part"] / times["whole"])
CASES = {one.name: one for one in (case("part", 1.0, 1.1, 0.9), case("whole", 2.0, 2.2, 1.8), case("other", 9, 1, 5))}


def on(engine: str = "async", devices: int = 2, **parameters: object) -> Result:
    found = result(parallel("torch", engine), {"any": 1.0})
    backend = {**found.backend, "devices": [f"cpu:{number}" for number in range(1, devices + 1)]}
    # With two cores for three parts a third can be saved.
    metrics = {**found.metrics, "possible_on_cores_fraction": 1 / 3}
    return replace(
        found, backend=backend, parameters={**found.parameters, "workers": "1,2", **parameters}, metrics=metrics
    )


def test_it_is_of_the_medians_with_an_interval_over_the_rounds_that_it_touches() -> None:
    found = HALF.measured(CASES)
    assert found is not None
    assert found.estimate == 0.5
    assert 0.4 < found.low < 0.5 < found.high < 0.6
    # Rounds are resampled whole: what is common to part and whole is no noise, and the other case is not looked at.
    assert HALF.measured({**CASES, "other": case("other", 1e9)}) == found
    dispatched = interval_of(lambda times: times.dispatch("part") / times["part"], CASES)
    assert dispatched is not None
    assert dispatched.estimate == 0.5


def test_bands_ascend_from_the_lowest_and_each_has_a_code_and_a_sentence_of_its_own() -> None:
    for metric in (one for experiment in EXPERIMENTS.values() for one in experiment.metrics if one.bands):
        starts = [band.start for band in metric.bands]
        assert starts[0] == LOWEST, metric.name
        assert starts == sorted(set(starts)), metric.name
        for texts in ([band.code for band in metric.bands], [band.says for band in metric.bands]):
            assert len(set(texts)) == len(texts), metric.name
        for says in (band.says for band in metric.bands):
            # Figures stand behind the sentence, and nowhere in it.
            assert says[0].isupper() and not says.endswith("."), says  # noqa: PT018
            assert not any(character.isdigit() for character in says), says


SHARE = Metric("share", bands=(Band(LOWEST, "low", "Low"), Band(0.2, "middle", "Middle"), Band(0.8, "high", "High")))
FALLING = replace(SHARE, share=lambda value, _: 1 - value)


@given(st.sampled_from([SHARE, FALLING]), st.lists(st.floats(-1, 6), min_size=3, max_size=3).map(sorted))
def test_what_it_means_holds_for_the_whole_interval(metric: Metric, bounds: list[float]) -> None:
    low, estimate, high = bounds
    placed = metric.place(Interval(estimate, low, high), on())
    ends = [metric.place(Interval(value, value, value), on()) for value in bounds]
    assert placed == (ends[0] if ends[0] == ends[2] else None)
    assert metric.place(Interval(estimate, -math.inf, math.inf), on()) is None
    assert metric.place(Interval(estimate, math.nan, math.nan), on()) is None


MEANINGS = [
    ("parallel", "async", 2, {0.7: "hindered", 1.0: "serial", 1.65: "partly", 1.97: "parallel"}),
    ("parallel", "async", 4, {0.7: "hindered", 1.0: "serial", 1.97: "partly", 3.7: "parallel"}),
    ("parallel", "async", 8, {0.5: "hindered", 0.9: "serial"}),
    ("overlap", "async", 2, {-0.4: "hindered", 0.05: "serial", 0.5: "partly", 0.93: "hidden"}),
    ("overlap", "sync", 2, {0.05: "serial", 0.93: "without-queue", 0.5: "without-queue"}),
    ("independent-ops", "async", 2, {0.67: "hindered", 1.02: "serial", 1.43: "partly", 1.92: "parallel"}),
    ("independent-ops independence_speedup", "async", 2, {1.1: "in-order", 1.9: "parallel"}),
    ("independent-ops threads_speedup", "async", 2, {0.5: "slower", 1.0: "unchanged", 1.9: "faster"}),
    ("small-ops", "async", 2, {0.7: "hindered", 1.1: "no-help", 1.5: "partly", 1.9: "parallel"}),
    ("small-ops", "async", 4, {0.7: "hindered", 1.1: "no-help"}),
    ("small-ops", "async", 1, {1.0: "no-help"}),
    ("small-ops small_advantage_over_threads", "async", 2, {0.5: "operators", 1.0: "neither", 2.0: "launches"}),
    ("small-ops small_dispatch_fraction", "async", 2, {0.3: "computing", 0.9: "launching"}),
    ("three-way", "async", 2, {-0.2: "hindered", 0.02: "serial", 0.2: "partly", 0.32: "parallel"}),
    ("three-way", "sync", 2, {0.32: "without-queue"}),
    ("dependencies", "async", 2, {0.5: "slower"}),
    ("dependencies random_bound_fraction", "async", 2, {0.9: "near"}),
    ("dependencies speedup", "async", 2, {0.8: "cost", 1.0: "no-difference", 1.4: "paid"}),
    ("graph", "async", 3, {0.95: "near", 1.4: "beyond"}),
    ("batch-norm", "async", 2, {0.8: "faster", 1.0: "equal", 1.2: "slower"}),
    ("allreduce native_speedup_over_star", "async", 2, {0.8: "slower", 4.0: "faster"}),
    ("allreduce sharded_speedup_over_star", "async", 2, {0.5: "slower"}),
    ("eager-cpu torch_sync_dispatch_fraction", "async", 2, {0.99: "not-queued"}),
    ("eager-cpu torch_async_dispatch_fraction", "async", 2, {0.01: "queued"}),
    ("allreduce spread_roots_speedup", "async", 2, {0.8: "slower", 1.0: "equal", 1.2: "faster"}),
    ("allreduce share_of_stream_bound", "async", 2, {0.5: "slower"}),
    ("partitioning", "async", 2, {0.8: "slower", 1.0: "equal", 1.2: "faster"}),
    ("partitioning data_parallel_speedup", "async", 2, {1.2: "faster"}),
    ("partitioning micro_batch_speedup", "async", 2, {0.8: "slower"}),
    ("batch-norm per_device_difference_fraction", "async", 2, {0.15: "different"}),
    ("async", "async", 2, {0.01: "queued", 0.5: "partly"}),
    ("async", "sync", 2, {0.99: "not-queued"}),
    ("async wait_fraction", "async", 2, {0.1: "selective", 1.0: "not-selective"}),
    ("eager-cpu", "sync", 2, {0.99: "not-queued"}),
    ("barriers", "async", 2, {-0.05: "selective", 0.5: "partly"}),
    ("barriers", "sync", 2, {1.0: "not-selective"}),
    ("cost-model", "sync", 2, {0.005: "inside"}),
    ("cost-model", "async", 2, {0.25: "python", 2.95: "device"}),
    ("data-parallel test_accuracy", "async", 2, {0.1: "chance", 0.22: "learnt"}),
    ("batch-scaling", "async", 2, {0.9: "less", 1.1: "more"}),
    ("batch-scaling fixed_batch_scaling_efficiency", "async", 2, {0.3: "hindered", 0.5: "serial"}),
    ("batch-scaling fixed_batch_scaling_efficiency", "async", 4, {0.15: "hindered", 0.25: "serial", 0.7: "partly"}),
    ("batch-scaling scaled_batch_scaling_efficiency", "async", 2, {0.7: "partly", 0.95: "parallel"}),
    ("evaluate", "async", 2, {0.9: "slower", 1.5: "faster"}),
    ("evaluate unequal_images", "async", 2, {0: "equal", 1: "rounding"}),
    ("learning-rates", "async", 4, {0.5: "lower", 1: "same", 2: "partly"}),
    ("learning-rates", "async", 2, {2: "linear", 4: "more"}),
    ("learning-rates scaled_rate_gain", "async", 2, {-0.05: "worse", 0.05: "better"}),
]


@pytest.mark.parametrize(("experiment", "engine", "devices", "codes"), MEANINGS)
def test_what_an_experiment_s_figure_means(experiment: str, engine: str, devices: int, codes: dict[float, str]) -> None:
    name, _, figure = experiment.partition(" ")
    metric = EXPERIMENTS[name].metric_named(figure or EXPERIMENTS[name].main.name)
    for value, code in codes.items():
        band = metric.place(Interval(value, value - 0.01, value + 0.01), on(engine, devices))
        assert band is not None
        assert band.code == code


def test_a_sentence_has_the_figure_its_bounds_and_what_is_possible() -> None:
    speedup = EXPERIMENTS["parallel"].metrics[0]
    assert speedup.sentence(Interval(1.97, 1.95, 1.99), on()) == (f"{speedup.bands[3].says}: 1.97 (1.95–1.99) of 2.")
    assert "parallel_speedup" in speedup.sentence(Interval(1.6, 0.8, 2.1), on())
