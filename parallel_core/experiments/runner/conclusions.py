"""From a trial to a result: metrics with intervals, what is invalid or disturbed, bands, and an
answer's sentences.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from parallel_core.experiments.runner.changes import Change, Found, in_a_quiet_moment
from parallel_core.experiments.runner.counts import Count, sentences_of
from parallel_core.experiments.runner.metrics import Metric, answers_of
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial
from parallel_core.measurement.checks import about_excess, largest_of, why_impossible
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT, Interval
from parallel_core.measurement.result import Answer, Result, describe_backend
from parallel_core.measurement.sweep import Curves
from parallel_core.system.formatting import percent
from parallel_core.system.machine import joined_watches

IMPOSSIBLE = (
    "No verdict: times were measured that cannot be true, so no time and no metric here "
    "is to be believed."
)
IMPOSSIBLE_TIMES = "By the clock nothing is known: times were measured that cannot be true."
BUSY_CLOCK = "By the clock nothing is known: other work took {} of the cores' time."
BUSY = "No verdict: other work took {} of the cores' time, which leaves every figure open."
NOTHING = "No answer: there was nothing for {} to compare."
A_BUG = "A fix in the backend or in the program: no other machine and no option gives an answer."


def conclude(
    experiment: str,
    trial: Trial,
    metrics: Sequence[Metric],
    changes: Sequence[Change],
    curves: Curves | None = None,
    counts: Sequence[Count] = (),
) -> Result:
    """Return the result of a trial.

    Values that are not NumPy's invalidate it. So do a case that is faster than its parts and a
    metric beyond what is possible, but these are disturbances, not errors of the program.
    """
    cases = tuple(trial.cases.values())
    measured = {
        metric.name: trial.figures.get(metric.name) or metric.measured(trial.cases)
        for metric in metrics
    }
    # In the metrics' order, then what else the program found.
    intervals = {
        name: interval
        for name, interval in (measured | trial.figures).items()
        if interval is not None
    }
    unlike = tuple(
        f"{what} differ from NumPy's by {error:.1e} of the largest element"
        for what, error in trial.errors.items()
        if not error < LARGEST_ERROR
    )
    described = dict(trial.described)
    found = Result(
        experiment=experiment,
        backend=describe_backend(trial.backend, trial.parameters.get("size")),
        parameters=trial.parameters,
        cases=cases,
        metrics={name: interval.estimate for name, interval in intervals.items()},
        metric_intervals={
            name: (interval.low, interval.high)
            for name, interval in intervals.items()
            if math.isfinite(interval.low + interval.high)
        },
        checks={
            "max_relative_error": largest_of(trial.errors.values()) if trial.errors else 0.0,
            **trial.checks,
        },
        explanation="",
        # In the order in which they are declared: the first answers the question.
        counts={
            count.name: trial.counts[count.name] for count in counts if count.name in trial.counts
        },
        series={**_series(curves, trial), **described.pop("series", {})},
        # Cases of one interleaving share a watch.
        machine_watch=joined_watches(
            tuple({id(case.watch): case.watch for case in cases if case.watch}.values())
        ),
        **described,
    )
    excesses, beyond = _excesses(metrics, intervals, found)
    impossible = (
        why_impossible(case, [trial.cases[part] for part in case.parts])
        for case in cases
        if case.parts
    )
    disturbances = (*filter(None, impossible), *beyond)
    found = replace(
        found, problems=(*unlike, *trial.problems, *disturbances), disturbances=disturbances
    )
    answers = answers_of(metrics, found)
    codes = {name: bands[0].code if len(bands) == 1 else None for name, bands in answers.items()}
    counted = {
        count.name: count.band_of(found).code for count in counts if count.name in found.counts
    }
    found = replace(found, bands={**counted, **codes})
    # A main figure without bands is an answer by itself.
    is_open = (
        bool(answers)
        and not any(answers.values())
        and bool(metrics[0].bands or not metrics[0].said(found))
    )
    if (
        is_open
        and not found.problems
        and found.machine_watch is not None
        and found.machine_watch.is_disturbed
    ):
        found = replace(
            found, disturbances=(BUSY.format(percent(found.machine_watch.taken_share)),)
        )
    answer = answer_of(metrics, changes, found, counts)
    return replace(
        found,
        explanation=" ".join(answer.sentences[:1]),
        answer=answer,
        notes=(*((*trial.notes, *excesses) if found.has_verdict else ()), *_rounds_missing(trial)),
    )


def answer_of(
    metrics: Sequence[Metric],
    changes: Sequence[Change],
    result: Result,
    counts: Sequence[Count] = (),
) -> Answer:
    """Say what a result means, by its counts and the bands of its metrics, and what would change
    it.

    Of an invalid one say why it is. If others took so much of the cores that every figure is
    inconclusive, the counts alone answer; without them there is no verdict.
    """
    errors = [problem for problem in result.problems if problem not in result.disturbances]
    if errors:
        return Answer((f"No answer: the result is invalid, because {errors[0]}.",), A_BUG)
    order = sentences_of(counts, result)
    if result.disturbances:
        return Answer((*order, *_no_clock(result)), in_a_quiet_moment(result))
    # A main figure without bands is said, too.
    told = [one for one in metrics if one.said(result) and (one.bands or one is metrics[0])]
    # Of the figures that counts answer for, the main one alone says what the clock adds.
    by_count = {count.metric for count in counts if count.name in result.counts}
    told = [one for one in told if one is metrics[0] or one.name not in by_count]
    intervals = {one: result.interval(one.name) for one in told}
    by_clock = [
        one.sentence(interval, result, counted=one.name in by_count)
        for one, interval in intervals.items()
        if interval is not None
    ]
    sentences = [*order, *by_clock]
    if told and not sentences:
        sentences = [NOTHING.format(told[0].name)]
    found = Found(result, answers_of(metrics, result))
    then = next((rule.then for rule in changes if rule.when(found)), "")
    return Answer(tuple(sentences), then if isinstance(then, str) else then(found))


def _no_clock(result: Result) -> tuple[str, ...]:
    """Say why the times of a disturbed result mean nothing; that is no verdict unless order was
    counted.
    """
    if not result.counts:
        return (IMPOSSIBLE,) if result.problems else result.disturbances
    if result.problems:
        return (IMPOSSIBLE_TIMES,)
    assert result.machine_watch is not None
    return (BUSY_CLOCK.format(percent(result.machine_watch.taken_share)),)


def _series(curves: Curves | None, trial: Trial) -> Mapping[str, Any]:
    """Return the points of the curves, and the values at them; NaN where a curve has none."""
    if curves is None or not trial.points:
        return {}
    points = sorted({at for curve in trial.points.values() for at in curve})
    values = {
        f"{curves.quantity} {label}".rstrip(): tuple(curve.get(at, math.nan) for at in points)
        for label, curve in trial.points.items()
    }
    return {curves.over: tuple(points), **values}


def _excesses(
    metrics: Sequence[Metric], intervals: Mapping[str, Interval], found: Result
) -> tuple[list[str], list[str]]:
    """Say of which metrics more was measured than is possible: within the noise, and beyond it."""
    within: list[str] = []
    beyond: list[str] = []
    for metric in metrics:
        if metric.name in intervals and math.isfinite(most := metric.at_most(found)):
            excess = about_excess(metric.name, intervals[metric.name], most, metric.in_percent)
            if excess is not None:
                sentence, can_be = excess
                (within if can_be else beyond).append(sentence)
    return within, beyond


def _rounds_missing(trial: Trial) -> tuple[str, ...]:
    """Say that the budget was too short, if it allowed fewer rounds than a verdict takes."""
    taken = min((len(case.seconds) for case in trial.cases.values()), default=0)
    if not math.isfinite(trial.budget) or taken >= min(FEWEST_FOR_A_VERDICT, trial.rounds):
        return ()
    budget = trial.parameters.get("budget", trial.budget)
    allowed = f"The budget of {budget:g} s allowed {taken} of {trial.rounds} rounds"
    return (f"{allowed}: too few to tell a difference from noise (--budget gives more).",)
