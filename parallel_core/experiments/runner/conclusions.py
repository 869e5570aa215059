"""Conclusions: from a trial to its result, with problems, disturbances, bands and an answer."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parallel_core.experiments.runner.changes import Answered, Change, in_a_quiet_moment
from parallel_core.experiments.runner.counts import Count, sentences_of
from parallel_core.experiments.runner.metrics import (
    CANNOT_TELL,
    Band,
    DirectAnswer,
    Metric,
    answers_of,
)
from parallel_core.experiments.runner.recordings import recorded_otherwise
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial
from parallel_core.measurement.checks import (
    about_excess,
    largest_of,
    values_differ,
    why_impossible,
)
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT, Interval
from parallel_core.measurement.result import Answer, Note, Result, describe_backend
from parallel_core.measurement.sweep import Curves
from parallel_core.system.formatting import percent
from parallel_core.system.machine import joined_watches

IMPOSSIBLE = "times were measured that cannot be true"
BUSY = "other work took {} of the cores' time"
NOTHING = "No answer: there was nothing to compare."
A_BUG = "A fix in the backend or in the program: no other machine and no option gives an answer."


def conclude(
    experiment: str,
    trial: Trial,
    metrics: Sequence[Metric],
    changes: Sequence[Change],
    curves: Curves | None = None,
    counts: Sequence[Count] = (),
    answers_directly: Callable[[Result], DirectAnswer | None] | None = None,
) -> Result:
    """Return the result of a trial; `answers_directly` answers the experiment's question from it.

    The result is invalid if values differ from NumPy's, if a case is faster than its parts, or if a
    metric is larger than is possible. The last two are disturbances, not errors of the program.
    """
    intervals = _intervals(metrics, trial)
    result = _measured(experiment, trial, intervals, curves, counts)
    excesses = _excesses(metrics, intervals, result)
    impossible = [excess for excess in excesses if excess.code == "impossible-figure"]
    disturbances = (*_impossible_times(trial), *impossible)
    answers = answers_of(metrics, result)
    result = replace(result, bands=_codes(counts, answers, result))
    contradictions = _contradictions(counts, metrics, answers, trial, result)
    problems = (*_wrong_values(trial), *trial.problems, *contradictions, *disturbances)
    result = replace(result, problems=problems, disturbances=disturbances)
    watch = result.machine_watch
    if not problems and watch is not None and watch.is_disturbed and _is_open(metrics, result):
        result = replace(result, disturbances=(too_busy(watch.taken_share),))
    rounds_missing = _rounds_missing(trial)
    if rounds_missing and answers_directly:
        answers_directly = _cannot_tell
    answer = answer_of(metrics, changes, result, counts, answers_directly)
    notes = (*trial.uncounted, *rounds_missing)
    if result.has_verdict:
        notes = (*trial.notes, *excesses, *notes)
    explanation = answer.sentences[0] if answer.sentences else ""
    return replace(result, explanation=explanation, answer=answer, notes=notes)


def _intervals(metrics: Sequence[Metric], trial: Trial) -> dict[str, Interval]:
    """Return the intervals of all figures by name: of metrics in their order, then of the rest."""
    intervals = {}
    for metric in metrics:
        interval = trial.figures.get(metric.name) or metric.measured(trial.cases)
        if interval is not None:
            intervals[metric.name] = interval
    return intervals | trial.figures


def _measured(
    experiment: str,
    trial: Trial,
    intervals: Mapping[str, Interval],
    curves: Curves | None,
    counts: Sequence[Count],
) -> Result:
    """Return the result with all that was measured, and without an answer."""
    cases = tuple(trial.cases.values())
    described = dict(trial.described)
    series = {**_series(curves, trial), **described.pop("series", {})}
    # Counts keep the order in which they are declared: the first one answers the question.
    counted = {
        count.name: trial.counts[count.name] for count in counts if count.name in trial.counts
    }
    bounds = {
        name: (interval.low, interval.high)
        for name, interval in intervals.items()
        if math.isfinite(interval.low) and math.isfinite(interval.high)
    }
    largest_error = largest_of(trial.errors.values()) if trial.errors else 0.0
    # Cases that were timed together share a watch, which counts once.
    watches = {id(case.watch): case.watch for case in cases if case.watch}
    return Result(
        experiment=experiment,
        backend=describe_backend(trial.backend, trial.parameters.get("size")),
        parameters=trial.parameters,
        cases=cases,
        metrics={name: interval.estimate for name, interval in intervals.items()},
        metric_intervals=bounds,
        checks={"max_relative_error": largest_error, **trial.checks},
        explanation="",
        counts=counted,
        series=series,
        machine_watch=joined_watches(tuple(watches.values())),
        **described,
    )


def too_busy(taken_share: float) -> Note:
    """Say that other work took so much of the cores that there is no verdict."""
    return Note("busy", f"No verdict: {BUSY.format(percent(taken_share))}.")


def few_rounds(budget: float, rounds: int, wanted: int) -> Note:
    """Say that the budget, in seconds, allowed fewer rounds than a verdict takes."""
    return Note(
        "few-rounds",
        f"The budget of {budget:g} s allowed {rounds} of {wanted} rounds: too few to tell a "
        "difference from noise (--budget gives more).",
    )


def _wrong_values(trial: Trial) -> list[Note]:
    """Say which values differ from NumPy's."""
    return [
        values_differ(what, error)
        for what, error in trial.errors.items()
        # NaN is not below any bound.
        if not error < LARGEST_ERROR
    ]


def _impossible_times(trial: Trial) -> list[Note]:
    """Say which cases were faster than their parts."""
    notes = []
    for case in trial.cases.values():
        if case.parts:
            note = why_impossible(case, [trial.cases[part] for part in case.parts])
            if note is not None:
                notes.append(note)
    return notes


def _codes(
    counts: Sequence[Count], answers: Mapping[str, Sequence[Band]], result: Result
) -> dict[str, str | None]:
    """Return the code of the band of each count and metric; None if the noise leaves it open."""
    codes: dict[str, str | None] = {}
    for count in counts:
        if count.name in result.counts:
            codes[count.name] = count.meaning(result, answers).code
    for name, bands in answers.items():
        is_decided = len(bands) == 1
        codes[name] = bands[0].code if is_decided else None
    return codes


def _contradictions(
    counts: Sequence[Count],
    metrics: Sequence[Metric],
    answers: Mapping[str, Sequence[Band]],
    trial: Trial,
    result: Result,
) -> list[Note]:
    """Say which counts and metrics cannot both be true of the same work.

    Nothing is gained that way by devices that take turns. Devices that work at the same time may
    gain nothing, as two threads of one core do, unless the recorded repetition was faster.
    """
    if result.backend["engine"] == "sync":
        # Without a queue a gain is of parts that were slower in isolation.
        return []
    notes = []
    for count in counts:
        if not count.at_once or count.name not in result.counts:
            continue
        metric = next((metric for metric in metrics if metric.name == count.metric), None)
        if metric is None or len(answers.get(metric.name, ())) != 1:
            continue
        (by_clock,) = answers[metric.name]
        by_count = count.band_of(result)
        gained_in_turns = by_count == count.bands[0] and by_clock == metric.bands[-1]
        only_recorded = by_count == count.bands[-1] and count.name in trial.faster_if_recorded
        gained_nothing = by_clock in metric.bands and by_clock.start <= metric.no_effect
        if gained_in_turns or (only_recorded and gained_nothing):
            interval = result.interval(metric.name)
            assert interval is not None
            counted = count.written(result.counts[count.name])
            by_the_clock = metric.write(interval, result)
            notes.append(recorded_otherwise(f"{counted}, and by the clock {by_the_clock}"))
    return notes


def _is_open(metrics: Sequence[Metric], result: Result) -> bool:
    """Return whether the noise leaves all metrics with bands open, and the main metric too."""
    answers = answers_of(metrics, result)
    if not answers or any(answers.values()):
        return False
    main = metrics[0]
    # The figure of a main metric without bands is an answer, if it is said.
    main_figure_answers = not main.bands and main.said(result)
    return not main_figure_answers


def answer_of(
    metrics: Sequence[Metric],
    changes: Sequence[Change],
    result: Result,
    counts: Sequence[Count] = (),
    answers_directly: Callable[[Result], DirectAnswer | None] | None = None,
) -> Answer:
    """Say what a result means, by its counts and metrics, and what would change the answer.

    If the result is invalid, the answer says why. If the times are disturbed, only the counts
    answer; without counts there is no verdict.
    """
    if result.errors:
        return Answer((f"No answer: the result is invalid, because {result.errors[0]}.",), A_BUG)
    by_counts = sentences_of(counts, result)
    if result.disturbances:
        no_clock = _no_clock(result)
        # What answers a question of time comes first, and so does that nothing does.
        sentences = (no_clock, *by_counts) if answers_directly else (*by_counts, no_clock)
        return Answer(sentences, in_a_quiet_moment(result))
    direct = answers_directly(result) if answers_directly else None
    by_clock = _sentences_by_clock(metrics, counts, result)
    first = () if direct is None else (direct.sentence,)
    # The clock may say the same again.
    sentences = tuple(dict.fromkeys((*first, *by_counts, *by_clock)))
    if not sentences and _said(metrics, counts, result):
        sentences = (NOTHING,)
    answered = Answered(result, answers_of(metrics, result), direct)
    return Answer(sentences, _what_would_change(changes, answered), direct.code if direct else None)


def _cannot_tell(_: Result) -> DirectAnswer:
    """Say that no question of time is answered by so few rounds; a note says how many they are."""
    return DirectAnswer(None, f"{CANNOT_TELL}: it has too few rounds.")


def _said(metrics: Sequence[Metric], counts: Sequence[Count], result: Result) -> list[Metric]:
    """Return the metrics that an answer may speak of: the main one, and others with bands.

    Another metric is left out if a count answers the same question.
    """
    counted = _metrics_of_counts(counts, result)
    said = []
    for metric in metrics:
        is_main = metric is metrics[0]
        adds_something = bool(metric.bands) and metric.name not in counted
        if metric.said(result) and (is_main or adds_something):
            said.append(metric)
    return said


def _sentences_by_clock(
    metrics: Sequence[Metric], counts: Sequence[Count], result: Result
) -> list[str]:
    """Return a sentence for each metric that an answer may speak of and that was measured."""
    counted = _metrics_of_counts(counts, result)
    sentences = []
    for metric in _said(metrics, counts, result):
        interval = result.interval(metric.name)
        if interval is not None:
            sentences.append(metric.sentence(interval, result, counted=metric.name in counted))
    return sentences


def _metrics_of_counts(counts: Sequence[Count], result: Result) -> set[str]:
    """Return the names of the metrics whose question a count of the result answers."""
    return {count.metric for count in counts if count.name in result.counts}


def _what_would_change(changes: Sequence[Change], answered: Answered) -> str:
    """Say what would change an answer, by the first rule that applies; empty if none does."""
    for change in changes:
        if change.when(answered):
            if isinstance(change.then, str):
                return change.then
            return change.then(answered)
    return ""


def _no_clock(result: Result) -> str:
    """Say why the times of a disturbed result mean nothing, and without counts: no verdict."""
    reason = IMPOSSIBLE
    if not result.problems:
        assert result.machine_watch is not None
        reason = BUSY.format(percent(result.machine_watch.taken_share))
    nothing_known = "By the clock nothing is known" if result.counts else "No verdict"
    return f"{nothing_known}: {reason}."


def _series(curves: Curves | None, trial: Trial) -> Mapping[str, Any]:
    """Return the series of the points of all curves, and of each curve's values at the points.

    The value is NaN if a curve lacks a point.
    """
    if curves is None or not trial.points:
        return {}
    points = sorted(set().union(*trial.points.values()))
    series = {curves.over: tuple(points)}
    for label, curve in trial.points.items():
        name = f"{curves.quantity} {label}".rstrip()
        series[name] = tuple(curve.get(point, math.nan) for point in points)
    return series


def _excesses(
    metrics: Sequence[Metric], intervals: Mapping[str, Interval], result: Result
) -> list[Note]:
    """Say which metrics are larger than is possible, within the noise or beyond it."""
    excesses = []
    for metric in metrics:
        most = metric.at_most(result)
        if metric.name not in intervals or not math.isfinite(most):
            continue
        excess = about_excess(metric.name, intervals[metric.name], most, metric.in_percent)
        if excess is not None:
            excesses.append(excess)
    return excesses


def _rounds_missing(trial: Trial) -> tuple[Note, ...]:
    """Say that the budget was too short, if it allowed fewer rounds than a verdict takes."""
    rounds = min((len(case.seconds) for case in trial.cases.values()), default=0)
    wanted = min(FEWEST_FOR_A_VERDICT, trial.rounds)
    if not math.isfinite(trial.budget) or rounds >= wanted:
        return ()
    budget = trial.parameters.get("budget", trial.budget)
    return (few_rounds(budget, rounds, trial.rounds),)
