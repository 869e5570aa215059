"""A metric means what the band of its whole interval says."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import (
    CANNOT_TELL,
    LOWEST,
    WITHOUT_QUEUE,
    Band,
    Metric,
)
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Counted, Result
from tests.parallel_core.compare.made_up import parallel, result

BANDED_METRICS = [
    metric for experiment in EXPERIMENTS.values() for metric in experiment.metrics if metric.bands
]


def on(engine: str = "async", devices: int = 2) -> Result:
    """Return a result of torch on an engine and a number of devices, which metrics may ask."""
    torch = result(parallel("torch", engine), {"any": 1.0})
    names = [f"cpu:{number}" for number in range(1, devices + 1)]
    return replace(
        torch,
        backend={**torch.backend, "devices": names},
        parameters={**torch.parameters, "workers": "1,2"},
        # With two cores for three parts a third can be saved.
        metrics={**torch.metrics, "possible_on_cores_fraction": 1 / 3},
    )


def test_bands_ascend_from_the_lowest_and_each_has_a_code_and_a_sentence_of_its_own() -> None:
    for metric in BANDED_METRICS:
        starts = [band.start for band in metric.bands]
        assert starts[0] == LOWEST, metric.name
        assert starts == sorted(set(starts)), metric.name
        assert len({band.code for band in metric.bands}) == len(starts), metric.name
        sentences = {band.says for band in metric.bands}
        assert len(sentences) == len(starts), metric.name
        for sentence in sentences:
            assert sentence[0].isupper(), sentence
            # It may stand within another sentence, with a small first letter.
            assert not sentence.startswith(("Python", "PyTorch", "MXNet", "JAX")), sentence
            assert not sentence.endswith("."), sentence
            # Figures stand behind the sentence, and nowhere in it.
            assert not re.search(r"\d", sentence), sentence


SHARE = Metric(
    "share",
    bands=(Band(LOWEST, "low", "Low"), Band(0.2, "middle", "Middle"), Band(0.8, "high", "High")),
)
FALLING = replace(SHARE, share=lambda value, _: 1 - value)


@given(
    st.sampled_from([SHARE, FALLING]),
    st.lists(st.floats(-1, 6), min_size=3, max_size=3).map(sorted),
)
@example(SHARE, [0.1, 0.5, 0.9])
def test_what_it_means_holds_for_the_whole_interval(metric: Metric, bounds: list[float]) -> None:
    low, estimate, high = bounds
    at_low, at_estimate, at_high = [
        metric.place(Interval(value, value, value), on()) for value in bounds
    ]
    answers = metric.answers(Interval(estimate, low, high), on())
    least_share, greatest_share = sorted((metric.share(low, on()), metric.share(high, on())))
    if at_low == at_high:
        assert answers == (at_low,)
    elif least_share <= metric.no_effect <= greatest_share:
        assert answers == ()
    else:
        assert {answers[0], answers[-1]} == {at_low, at_high}
        assert at_estimate in answers
    assert metric.answers(Interval(estimate, -math.inf, math.inf), on()) == ()
    assert metric.answers(Interval(estimate, math.nan, math.nan), on()) == ()


def test_an_answer_names_the_first_and_the_last_of_more_than_two_bands() -> None:
    low, middle, high = SHARE.bands
    four = replace(SHARE, bands=(low, middle, Band(0.4, "more", "More"), high))
    sentence = four.sentence(Interval(0.5, 0.3, 0.9), on())
    mentioned = [band.code for band in four.bands if band.says.lower() in sentence]
    assert mentioned == ["middle", "high"]


def test_without_a_queue_neighbouring_bands_that_need_one_are_one_answer() -> None:
    between, overlap = Interval(0.8, 0.7, 0.9), EXPERIMENTS["overlap"].main
    assert overlap.place(between, on("sync")) == WITHOUT_QUEUE
    assert [band.code for band in overlap.answers(between, on())] == ["partly", "hidden"]


Codes = Mapping[float, str]
"""The code of the band in which each value of a metric lies."""
ON_TWO_DEVICES: Mapping[str, Codes] = {
    "independent-ops": {0.67: "hindered", 1.02: "serial", 1.43: "partly", 1.92: "parallel"},
    "independent-ops independence_speedup": {1.1: "in-order", 1.9: "parallel"},
    "independent-ops threads_speedup": {0.5: "slower", 1.0: "unchanged", 1.9: "faster"},
    "small-ops": {0.7: "hindered", 1.1: "no-help", 1.5: "partly", 1.9: "parallel"},
    "small-ops small_advantage_over_threads": {0.5: "operators", 1.0: "neither", 2.0: "launches"},
    "small-ops small_dispatch_fraction": {0.3: "computing", 0.9: "launching"},
    "dependencies bound_fraction": {0.5: "slower"},
    "dependencies random_bound_fraction": {0.9: "near"},
    "dependencies": {0.8: "cost", 1.0: "no-difference", 1.4: "paid"},
    "eager-cpu torch_sync_dispatch_fraction": {0.99: "not-queued"},
    "eager-cpu torch_async_dispatch_fraction": {0.01: "queued"},
    "partitioning": {0.8: "slower", 1.0: "equal", 1.2: "faster"},
    "barriers": {-0.05: "selective", 0.5: "partly"},
    "cost-model": {0.25: "python", 2.95: "device"},
    "data-parallel test_accuracy": {0.1: "chance", 0.22: "learnt"},
    "batch-scaling": {0.9: "less", 1.1: "more"},
    "batch-scaling fixed_batch_scaling_efficiency": {0.3: "hindered", 0.5: "serial"},
    "batch-scaling scaled_batch_scaling_efficiency": {0.7: "partly", 0.95: "parallel"},
    "evaluate": {0.9: "slower", 1.5: "faster"},
    "evaluate unequal_images": {0: "equal", 1: "rounding"},
    "learning-rates": {2: "linear", 4: "more"},
    "learning-rates scaled_rate_gain": {-0.05: "worse", 0.05: "better"},
}
"""With queues; by experiment and metric, if that is not the main one."""
ON_OTHERS: Sequence[tuple[str, Result, Codes]] = [
    ("parallel", on(devices=4), {0.7: "hindered", 1.0: "serial", 1.97: "partly", 3.7: "parallel"}),
    ("overlap", on("sync"), {0.05: "serial", 0.93: "without-queue", 0.5: "without-queue"}),
    ("small-ops", on(devices=4), {0.7: "hindered", 1.1: "no-help"}),
    ("small-ops", on(devices=1), {1.0: "no-help"}),
    ("three-way", on("sync"), {0.32: "without-queue"}),
    ("graph", on(devices=3), {0.95: "near", 1.4: "beyond"}),
    ("async", on("sync"), {0.99: "not-queued"}),
    ("eager-cpu", on("sync"), {0.99: "not-queued"}),
    ("barriers", on("sync"), {1.0: "not-selective"}),
    ("cost-model", on("sync"), {0.005: "inside"}),
    (
        "batch-scaling fixed_batch_scaling_efficiency",
        on(devices=4),
        {0.15: "hindered", 0.25: "serial", 0.7: "partly"},
    ),
    ("learning-rates", on(devices=4), {0.5: "lower", 1: "same", 2: "partly"}),
]
"""Without queues, or on another number of devices."""


@pytest.mark.parametrize(
    ("experiment_and_metric", "measured_on", "codes"),
    [*((name, on(), codes) for name, codes in ON_TWO_DEVICES.items()), *ON_OTHERS],
)
def test_what_an_experiment_s_figure_means(
    experiment_and_metric: str, measured_on: Result, codes: Codes
) -> None:
    experiment_name, _, metric_name = experiment_and_metric.partition(" ")
    experiment = EXPERIMENTS[experiment_name]
    metric = experiment.metric_named(metric_name or experiment.main.name)
    for value, code in codes.items():
        band = metric.place(Interval(value, value - 0.01, value + 0.01), measured_on)
        assert band is not None
        assert band.code == code


def test_a_sentence_has_the_figure_its_bounds_and_what_is_possible() -> None:
    speedup = EXPERIMENTS["parallel"].main
    assert speedup.sentence(Interval(1.97, 1.95, 1.99), on()) == (
        f"{speedup.bands[3].says}: 1.97 (1.95–1.99) of 2."
    )
    assert speedup.says(Interval(1.6, 0.8, 2.1), on()) == CANNOT_TELL
    once = Interval(0.25, -math.inf, math.inf)
    assert Metric("step_seconds").write(once, on()) == "250 ms"


def test_what_a_count_excludes_is_no_answer() -> None:
    metric = replace(SHARE, not_if_counted="low")
    touches_low_and_middle = Interval(0.2, 0.1, 0.3)
    counted = replace(on(), counts={"queued": Counted(1, 1, "a test", (1,))})
    assert [band.code for band in metric.answers(touches_low_and_middle, on())] == ["low", "middle"]
    assert [band.code for band in metric.answers(touches_low_and_middle, counted)] == ["middle"]
