"""The first sentence of an answer answers the question, with the figure that it needs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.conclusions import IMPOSSIBLE_TIMES, answer_of
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Counted, Result
from tests.parallel_core.report.plots.synthetic_results import TIMED

SURELY, PERHAPS, SLOWER = Interval(2.0, 1.5, 2.5), Interval(1.1, 0.8, 1.4), Interval(0.5, 0.4, 0.6)


def answer(name: str, figures: Mapping[str, Interval], **fields: Any) -> str:
    """Return what an experiment answers to a result with these figures."""
    metrics = {figure: interval.estimate for figure, interval in figures.items()}
    bounds = {
        figure: (interval.low, interval.high)
        for figure, interval in figures.items()
        if math.isfinite(interval.high)
    }
    result: Result = replace(TIMED, metrics=metrics, metric_intervals=bounds, **fields)
    answers = EXPERIMENTS[name].answer
    assert answers is not None
    return answers(result)


@pytest.mark.parametrize(
    ("speedup", "first_words"),
    [(SURELY, "Once: 2.00 (1.50–2.50)"), (PERHAPS, "Neither"), (SLOWER, "Each time")],
)
def test_waiting_once_is_faster_for_so_many_increments(speedup: Interval, first_words: str) -> None:
    said = answer("async", {"async_speedup": speedup}, parameters={"steps": 2600})
    assert said.startswith(first_words)
    assert "2,600" in said
    assert "10,000" in said
    assert answer("async", {}) == ""


@pytest.mark.parametrize(("measured", "first_word"), [((1.1, 1.0), "Yes"), ((20.0, 1.0), "No")])
def test_the_cost_model_predicts_or_not_and_launching_is_the_reason(
    measured: tuple[float, float], first_word: str
) -> None:
    series = {
        "elements": (2.0, 1000.0),
        "seconds measured": measured,
        "seconds book's formula": (1.0, 1.0),
    }
    said = answer("cost-model", {"smallest_t2_over_t1": SLOWER}, series=series)
    assert said.startswith(f"{first_word}: ")
    assert ("launching" in said) == (first_word == "No")


@pytest.mark.parametrize(
    ("figures", "first_words"),
    [
        ({"crossing_size": Interval(62, -math.inf, math.inf)}, "From ~62 x 62"),
        ({}, "At no size up to 256 x 256"),
    ],
)
def test_devices_pay_from_a_size_on_or_at_none(
    figures: Mapping[str, Interval], first_words: str
) -> None:
    exact = Interval(256, 256, 256)
    others = {"small_speedup": SLOWER, "largest_speedup": SURELY, "largest_speedup_size": exact}
    said = answer("small-ops", {**others, **figures}, parameters={"sizes": "8,256"})
    assert said.startswith(first_words)


def test_without_times_a_question_of_time_is_left_open_first() -> None:
    experiment = EXPERIMENTS["async"]
    counted = {experiment.counts[0].name: Counted(10, 10, "a test", (10,))}
    disturbed = replace(TIMED, counts=counted, problems=("Wrong",), disturbances=("Wrong",))
    answer = answer_of(
        experiment.metrics, experiment.changes, disturbed, experiment.counts, experiment.answer
    )
    no_clock, by_count = answer.sentences
    assert no_clock == IMPOSSIBLE_TIMES
    assert "10 of 10" in by_count


def test_tasks_are_right_even_if_their_time_is_not_known() -> None:
    broken = {"counts": {"broken_dependencies": Counted(0, 12, "a test", (0,))}}
    assert answer("dependencies", {}, **broken).startswith("Right: 0 of 12")
    faster = answer("dependencies", {"speedup": SURELY}, **broken)
    assert "Faster: 2.00 (1.50–2.50)" in faster
    assert "cannot tell" in answer("dependencies", {"speedup": PERHAPS}, **broken)


def test_the_fastest_sum_is_named_by_size() -> None:
    series = {
        "bytes": (4096.0, 16384.0, 65536.0),
        "algbw_gb_per_s plain copy": (9.0, 9.0, 9.0),
        "algbw_gb_per_s star": (4.0, 4.0, 2.0),
        "algbw_gb_per_s native": (1.0, 3.9, 4.0),
    }
    said = answer("allreduce", {}, series=series)
    assert "4 KiB star, 16 KiB no clear one, 64 KiB native" in said
    assert "native ~2" in said


@pytest.mark.parametrize(("last_loss", "shows_little"), [(2.301, True), (1.0, False)])
def test_equal_losses_of_a_network_that_has_not_moved_show_little(
    last_loss: float, shows_little: bool
) -> None:
    figures = {"images_per_second": Interval(5000, 4000, 6000), "speedup_over_one_device": SURELY}
    said = answer("data-parallel", figures, series={"loss": (2.302, last_loss)})
    assert ("show little" in said) == shows_little
