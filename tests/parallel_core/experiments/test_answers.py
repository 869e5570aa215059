"""An answer begins with what the question asks: by its code, with the figure that it needs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.changes import LESS_NOISE
from parallel_core.experiments.runner.conclusions import IMPOSSIBLE_TIMES, answer_of
from parallel_core.experiments.runner.metrics import DirectAnswer
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Counted, Note, Result
from tests.parallel_core.report.plots.synthetic_results import TIMED

SURELY, PERHAPS, SLOWER = Interval(2.0, 1.5, 2.5), Interval(1.1, 0.8, 1.4), Interval(0.5, 0.4, 0.6)


def result_with(figures: Mapping[str, Interval], **fields: Any) -> Result:
    """Return a result with these figures."""
    metrics = {figure: interval.estimate for figure, interval in figures.items()}
    bounds = {
        figure: (interval.low, interval.high)
        for figure, interval in figures.items()
        if math.isfinite(interval.high)
    }
    return replace(TIMED, metrics=metrics, metric_intervals=bounds, **fields)


def answer(name: str, figures: Mapping[str, Interval], **fields: Any) -> DirectAnswer:
    """Return what an experiment answers to a result with these figures."""
    answers = EXPERIMENTS[name].answer
    assert answers is not None
    given = answers(result_with(figures, **fields))
    assert given is not None
    return given


@pytest.mark.parametrize(
    ("speedup", "code"), [(SURELY, "once"), (PERHAPS, None), (SLOWER, "each-time")]
)
def test_waiting_once_is_faster_for_so_many_increments(speedup: Interval, code: str | None) -> None:
    given = answer("async", {"async_speedup": speedup}, parameters={"steps": 2600})
    assert given.code == code
    assert "2,600" in given.sentence
    assert "10,000" in given.sentence


def test_what_cannot_be_told_asks_for_less_noise() -> None:
    experiment = EXPERIMENTS["async"]
    result = result_with({"async_speedup": PERHAPS}, parameters={"steps": 2600})
    given = answer_of(experiment.metrics, experiment.changes, result, (), experiment.answer)
    assert given.code is None
    less_noise = answer_of(experiment.metrics, (LESS_NOISE,), result, (), experiment.answer)
    assert given.would_change == less_noise.would_change != ""


@pytest.mark.parametrize(("measured", "code"), [((1.1, 1.0), "predicts"), ((20.0, 1.0), "misses")])
def test_the_cost_model_predicts_or_not_and_launching_is_the_reason(
    measured: tuple[float, float], code: str
) -> None:
    series = {
        "elements": (2.0, 1000.0),
        "seconds measured": measured,
        "seconds book's formula": (1.0, 1.0),
    }
    given = answer("cost-model", {"smallest_t2_over_t1": SLOWER}, series=series)
    assert given.code == code
    assert ("launching" in given.sentence) == (code == "misses")


@pytest.mark.parametrize(
    ("figures", "code", "size"),
    [
        ({"crossing_size": Interval(62, -math.inf, math.inf)}, "from-a-size", "62 x 62"),
        ({}, "no-size", "256 x 256"),
    ],
)
def test_devices_pay_from_a_size_on_or_at_none(
    figures: Mapping[str, Interval], code: str, size: str
) -> None:
    exact = Interval(256, 256, 256)
    others = {"small_speedup": SLOWER, "largest_speedup": SURELY, "largest_speedup_size": exact}
    given = answer("small-ops", {**others, **figures}, parameters={"sizes": "8,256"})
    assert given.code == code
    assert size in given.sentence


def test_without_times_a_question_of_time_is_left_open_first() -> None:
    experiment = EXPERIMENTS["async"]
    counted = {experiment.counts[0].name: Counted(10, 10, "a test", (10,))}
    wrong = (Note(None, "Wrong"),)
    disturbed = replace(TIMED, counts=counted, problems=wrong, disturbances=wrong)
    given = answer_of(
        experiment.metrics, experiment.changes, disturbed, experiment.counts, experiment.answer
    )
    no_clock, by_count = given.sentences
    assert no_clock == IMPOSSIBLE_TIMES
    assert "10 of 10" in by_count


def test_the_fastest_sum_is_named_by_size() -> None:
    series = {
        "bytes": (4096.0, 16384.0, 65536.0),
        "algbw_gb_per_s plain copy": (9.0, 9.0, 9.0),
        "algbw_gb_per_s star": (4.0, 4.0, 2.0),
        "algbw_gb_per_s native": (1.0, 3.9, 4.0),
    }
    sentence = answer("allreduce", {}, series=series).sentence
    assert "4 KiB star, 16 KiB no clear one, 64 KiB native" in sentence
    assert "native ~2" in sentence


@pytest.mark.parametrize(("last_loss", "code"), [(2.301, "hardly-moved"), (1.0, "moved")])
def test_equal_losses_of_a_network_that_has_not_moved_show_little(
    last_loss: float, code: str
) -> None:
    figures = {"images_per_second": Interval(5000, 4000, 6000), "speedup_over_one_device": SURELY}
    assert answer("data-parallel", figures, series={"loss": (2.302, last_loss)}).code == code
