"""An answer of time says first that it is open; those of experiments are in the golden files."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.changes import LESS_NOISE
from parallel_core.experiments.runner.conclusions import IMPOSSIBLE, answer_of
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


def test_what_cannot_be_told_asks_for_less_noise() -> None:
    experiment = EXPERIMENTS["async"]
    result = result_with({"async_speedup": PERHAPS}, parameters={"steps": 2600})
    given = answer_of(experiment.metrics, experiment.changes, result, (), experiment.answer)
    assert given.code is None
    less_noise = answer_of(experiment.metrics, (LESS_NOISE,), result, (), experiment.answer)
    assert given.would_change == less_noise.would_change != ""


def test_without_times_a_question_of_time_is_left_open_first() -> None:
    experiment = EXPERIMENTS["async"]
    counted = {experiment.counts[0].name: Counted(10, 10, "a test", (10,))}
    wrong = (Note(None, "Wrong"),)
    disturbed = replace(TIMED, counts=counted, problems=wrong, disturbances=wrong)
    given = answer_of(
        experiment.metrics, experiment.changes, disturbed, experiment.counts, experiment.answer
    )
    no_clock, by_count = given.sentences
    assert IMPOSSIBLE in no_clock
    assert "10 of 10" in by_count
