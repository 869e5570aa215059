"""A metric follows from the times that its formula touches, and means what the band of its whole interval says."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import LOWEST, WITHOUT_QUEUE, Band, Metric, interval_of
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


def test_without_its_cases_or_more_than_a_round_it_is_missing_or_unbounded() -> None:
    assert HALF.measured({"part": CASES["part"]}) is None
    once = HALF.measured({"part": case("part", 1.0), "whole": case("whole", 2.0)})
    assert once == Interval(0.5, -math.inf, math.inf)
    assert Metric("given").measured(CASES) is None


def metrics_with_bands() -> Iterator[tuple[str, Metric]]:
    for experiment in EXPERIMENTS.values():
        for metric in experiment.metrics:
            if metric.bands:
                yield f"{experiment.name} {metric.name}", metric


WITH_BANDS = dict(metrics_with_bands())


@pytest.mark.parametrize("metric", WITH_BANDS.values(), ids=WITH_BANDS)
def test_bands_ascend_from_the_lowest_and_each_has_a_code_and_a_sentence_of_its_own(metric: Metric) -> None:
    starts = [band.start for band in metric.bands]
    assert starts[0] == LOWEST
    assert starts == sorted(set(starts))
    for texts in ([band.code for band in metric.bands], [band.says for band in metric.bands]):
        assert len(set(texts)) == len(texts)
    for band in metric.bands:
        assert band.says[0].isupper()
        assert not band.says.endswith(".")
        # Figures stand behind the sentence, and nowhere in it.
        assert not any(character.isdigit() for character in band.says)


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


@pytest.mark.parametrize(
    ("experiment", "value", "devices", "engine", "code"),
    [
        ("parallel", 0.7, 2, "async", "hindered"),
        ("parallel", 1.0, 2, "async", "serial"),
        ("parallel", 1.65, 2, "async", "partly"),
        ("parallel", 1.97, 2, "async", "parallel"),
        ("parallel", 1.97, 4, "async", "partly"),
        ("parallel", 3.7, 4, "async", "parallel"),
        ("overlap", -0.4, 2, "async", "hindered"),
        ("overlap", 0.05, 2, "async", "serial"),
        ("overlap", 0.05, 2, "sync", "serial"),
        ("overlap", 0.5, 2, "async", "partly"),
        ("overlap", 0.93, 2, "async", "hidden"),
        ("overlap", 0.93, 2, "sync", WITHOUT_QUEUE.code),
        ("overlap", 0.5, 2, "sync", WITHOUT_QUEUE.code),
        ("independent-ops", 0.67, 2, "async", "hindered"),
        ("independent-ops", 1.02, 2, "async", "serial"),
        ("independent-ops", 1.43, 2, "async", "partly"),
        ("independent-ops", 1.92, 2, "async", "parallel"),
        ("independent-ops independence_speedup", 1.1, 2, "async", "in-order"),
        ("independent-ops independence_speedup", 1.9, 2, "async", "parallel"),
        ("independent-ops threads_speedup", 0.5, 2, "async", "slower"),
        ("independent-ops threads_speedup", 1.0, 2, "async", "unchanged"),
        ("independent-ops threads_speedup", 1.9, 2, "async", "faster"),
        ("small-ops", 0.7, 2, "async", "hindered"),
        ("small-ops", 1.1, 2, "async", "no-help"),
        ("small-ops", 1.5, 2, "async", "partly"),
        ("small-ops", 1.9, 2, "async", "parallel"),
        ("small-ops", 1.0, 1, "async", "no-help"),
        ("small-ops small_advantage_over_threads", 0.5, 2, "async", "operators"),
        ("small-ops small_advantage_over_threads", 1.0, 2, "async", "neither"),
        ("small-ops small_advantage_over_threads", 2.0, 2, "async", "launches"),
        ("small-ops small_dispatch_fraction", 0.3, 2, "async", "computing"),
        ("small-ops small_dispatch_fraction", 0.9, 2, "async", "launching"),
        ("three-way", -0.2, 2, "async", "hindered"),
        ("three-way", 0.02, 2, "async", "serial"),
        ("three-way", 0.2, 2, "async", "partly"),
        ("three-way", 0.32, 2, "async", "parallel"),
        ("three-way", 0.32, 2, "sync", WITHOUT_QUEUE.code),
        ("dependencies", 0.5, 2, "async", "slower"),
        ("dependencies random_bound_fraction", 0.9, 2, "async", "near"),
        ("dependencies speedup", 0.8, 2, "async", "cost"),
        ("dependencies speedup", 1.0, 2, "async", "no-difference"),
        ("dependencies speedup", 1.4, 2, "async", "paid"),
        ("graph", 0.95, 3, "async", "near"),
        ("graph", 1.4, 3, "async", "beyond"),
        ("batch-norm", 0.8, 2, "async", "faster"),
        ("batch-norm", 1.0, 2, "async", "equal"),
        ("batch-norm", 1.2, 2, "async", "slower"),
        ("allreduce native_speedup_over_star", 0.8, 2, "async", "slower"),
        ("allreduce native_speedup_over_star", 4.0, 2, "async", "faster"),
        ("allreduce sharded_speedup_over_star", 0.5, 2, "async", "slower"),
        ("eager-cpu torch_sync_dispatch_fraction", 0.99, 2, "async", "not-queued"),
        ("eager-cpu torch_async_dispatch_fraction", 0.01, 2, "async", "queued"),
        ("allreduce spread_roots_speedup", 0.8, 2, "async", "slower"),
        ("allreduce spread_roots_speedup", 1.0, 2, "async", "equal"),
        ("allreduce spread_roots_speedup", 1.2, 2, "async", "faster"),
        ("allreduce share_of_stream_bound", 0.5, 2, "async", "slower"),
        ("partitioning", 0.8, 2, "async", "slower"),
        ("partitioning", 1.0, 2, "async", "equal"),
        ("partitioning", 1.2, 2, "async", "faster"),
        ("partitioning data_parallel_speedup", 1.2, 2, "async", "faster"),
        ("partitioning micro_batch_speedup", 0.8, 2, "async", "slower"),
        ("batch-norm per_device_difference_fraction", 0.15, 2, "async", "different"),
        ("async", 0.01, 2, "async", "queued"),
        ("async", 0.5, 2, "async", "partly"),
        ("async", 0.99, 2, "sync", "not-queued"),
        ("eager-cpu", 0.99, 2, "sync", "not-queued"),
        ("barriers", -0.05, 2, "async", "selective"),
        ("barriers", 0.5, 2, "async", "partly"),
        ("barriers", 1.0, 2, "sync", "not-selective"),
        ("cost-model", 0.005, 2, "sync", "inside"),
        ("cost-model", 0.25, 2, "async", "python"),
        ("cost-model", 2.95, 2, "async", "device"),
        ("data-parallel test_accuracy", 0.1, 2, "async", "chance"),
        ("data-parallel test_accuracy", 0.22, 2, "async", "learnt"),
        ("batch-scaling", 0.9, 2, "async", "less"),
        ("batch-scaling", 1.1, 2, "async", "more"),
        ("batch-scaling fixed_batch_scaling_efficiency", 0.3, 2, "async", "hindered"),
        ("batch-scaling fixed_batch_scaling_efficiency", 0.5, 2, "async", "serial"),
        ("batch-scaling scaled_batch_scaling_efficiency", 0.7, 2, "async", "partly"),
        ("batch-scaling scaled_batch_scaling_efficiency", 0.95, 2, "async", "parallel"),
        ("evaluate", 0.9, 2, "async", "slower"),
        ("evaluate", 1.5, 2, "async", "faster"),
        ("evaluate unequal_images", 0, 2, "async", "equal"),
        ("evaluate unequal_images", 1, 2, "async", "rounding"),
        ("learning-rates", 0.5, 4, "async", "lower"),
        ("learning-rates", 1, 4, "async", "same"),
        ("learning-rates", 2, 4, "async", "partly"),
        ("learning-rates", 2, 2, "async", "linear"),
        ("learning-rates", 4, 2, "async", "more"),
        ("learning-rates scaled_rate_gain", -0.05, 2, "async", "worse"),
        ("learning-rates scaled_rate_gain", 0.05, 2, "async", "better"),
    ],
)
def test_what_an_experiment_s_figure_means(experiment: str, value: float, devices: int, engine: str, code: str) -> None:
    name, _, figure = experiment.partition(" ")
    metric = EXPERIMENTS[name].metric_named(figure or EXPERIMENTS[name].main.name)
    band = metric.place(Interval(value, value - 0.01, value + 0.01), on(engine, devices))
    assert band is not None
    assert band.code == code


def test_a_sentence_has_the_figure_its_bounds_and_what_is_possible() -> None:
    speedup = EXPERIMENTS["parallel"].metrics[0]
    assert speedup.sentence(Interval(1.97, 1.95, 1.99), on()) == (f"{speedup.bands[3].says}: 1.97 (1.95–1.99) of 2.")
    assert "parallel_speedup" in speedup.sentence(Interval(1.6, 0.8, 2.1), on())
