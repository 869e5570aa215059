"""From a trial to a result: metrics with intervals, what is invalid or disturbed, bands, and an answer's sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backends.process_groups import GroupedBackend
from parallel_core.experiments.runner.changes import Change, Found, changed_by
from parallel_core.experiments.runner.metrics import Metric, bands_of
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import Limit, about_excess, largest_of, why_impossible
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT, Interval
from parallel_core.measurement.result import Case, Result, describe_backend
from parallel_core.measurement.sweep import Curves
from parallel_core.system.formatting import percent
from parallel_core.system.machine_watch import MachineWatch, joined_watches

__all__ = ["conclude"]

DISTURBED = Answer(
    ("No verdict: times were measured that cannot be true, so no time and no metric here is to be believed.",),
    "Other work disturbed the machine: measure again when it has ended, or with more --rounds and --budget.",
)
BUSY = "No verdict: other work took {} of the cores' time, so these times say little."
QUIET = "A quiet machine: measure again when the other work has ended."
A_BUG = "A fix in the backend or in the program: no other machine and no option gives an answer."


def conclude(
    experiment: str,
    trial: Trial,
    metrics: Sequence[Metric],
    changes: Sequence[Change],
    curves: Curves | None = None,
) -> Result:
    """Return the result of a trial.

    Values that are not NumPy's invalidate it. So do a case that is faster than its parts and a metric beyond what is
    possible, but these are disturbances, not errors of the program. If others took too much of the cores, only figures
    are said that no time is in; if there are none, the verdict is withheld.
    """
    intervals = _intervals(metrics, trial)
    cases = tuple(trial.cases.values())
    # The other ranks of a job on this host would be taken for strangers.
    watch = None if isinstance(trial.backend, GroupedBackend) else _watch_over(cases)
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
        checks={"max_relative_error": largest_of(trial.errors.values()) if trial.errors else 0.0, **trial.checks},
        explanation="",
        series={**(_series(curves, trial) if curves is not None else {}), **described.pop("series", {})},
        machine_watch=watch,
        **described,
    )
    excesses, beyond = _excesses(metrics, intervals, found)
    impossible = (why_impossible(case, [trial.cases[part] for part in case.parts]) for case in cases if case.parts)
    disturbances = (*filter(None, impossible), *beyond)
    problems = (*unlike, *trial.problems, *disturbances)
    bands = bands_of(metrics, found)
    answer = _withheld(problems, disturbances)
    said = () if answer else (*trial.notes, *excesses)
    if answer is None:
        # A main figure without bands is said, too; of a disturbed machine only what no time is in.
        told = [one for one in metrics if one.name in bands or (one is metrics[0] and not one.bands)]
        told = [one for one in told if one.name in intervals and (found.is_undisturbed or not one.timed)]
        sentences = tuple(one.sentence(intervals[one.name], found) for one in told)
        answer = Answer(sentences, changed_by(changes, Found(trial.backend, found, bands)))
        if watch is not None and not told and not watch.allows_verdict:
            answer, said = Answer((BUSY.format(percent(watch.taken_share)),), QUIET), ()
    return replace(
        found,
        bands={name: None if band is None else band.code for name, band in bands.items()},
        explanation=" ".join(answer.sentences[:1]),
        answer=answer,
        notes=(*said, *_rounds_missing(trial)),
        problems=problems,
        disturbances=disturbances,
    )


def _intervals(metrics: Sequence[Metric], trial: Trial) -> dict[str, Interval]:
    """Return the metrics that can be had, in their order, then what else the program found."""
    measured = {metric.name: trial.figures.get(metric.name) or metric.measured(trial.cases) for metric in metrics}
    return {name: interval for name, interval in (measured | trial.figures).items() if interval is not None}


def _series(curves: Curves, trial: Trial) -> Mapping[str, Any]:
    """Return the points of the curves, and the values at them; NaN where a curve has none."""
    points = sorted({at for curve in trial.points.values() for at in curve})
    if not points:
        return {}
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
            limit = Limit(most, intervals[metric.name])
            if told := about_excess(metric.name, limit):
                (within if limit.is_believed else beyond).append(told)
    return within, beyond


def _watch_over(cases: Sequence[Case]) -> MachineWatch | None:
    """Put together what was watched while the cases were timed; those of one interleaving share a watch."""
    watches = {id(case.watch): case.watch for case in cases if case.watch is not None}
    return joined_watches(tuple(watches.values()))


def _withheld(problems: Sequence[str], disturbances: Sequence[str]) -> Answer | None:
    """Return what is said in place of an answer, of an invalid or impossible result; None if it has one."""
    errors = [problem for problem in problems if problem not in disturbances]
    if errors:
        return Answer((f"No answer: the result is invalid, because {errors[0]}.",), A_BUG)
    return DISTURBED if disturbances else None


def _rounds_missing(trial: Trial) -> tuple[str, ...]:
    """Say that the budget was too short, if it allowed fewer rounds than a verdict takes."""
    taken = min((len(case.seconds) for case in trial.cases.values()), default=0)
    if not math.isfinite(trial.budget) or taken >= min(FEWEST_FOR_A_VERDICT, trial.rounds):
        return ()
    allowed = f"The budget of {trial.budget:g} s allowed {taken} of {trial.rounds} rounds"
    return (f"{allowed}: too few to tell a difference from noise (--budget gives more).",)
