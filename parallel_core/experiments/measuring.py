"""What every experiment does: time work in turn, hold values against NumPy's, and put all of it in a result."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from backends import Backend
from backends.process_groups import GroupedBackend
from parallel_core.errors import RequestError
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import Limit, about_excess, largest_of, relative_error, why_impossible
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT, Interval
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.result import Case, Result, describe_backend
from parallel_core.measurement.timing import Timing, interleave, measure
from parallel_core.system.formatting import percent
from parallel_core.system.machine_watch import MachineWatch, joined_watches

__all__ = [
    "FEWEST_TIMINGS",
    "Units",
    "allows_verdict",
    "largest_error",
    "refuse_single_device",
    "result_of",
    "run_elsewhere",
    "take_in_turn",
    "time_in_turn",
    "with_parts",
]

FEWEST_TIMINGS = 1 + FEWEST_FOR_A_VERDICT
"""How often everything is timed at the least for a verdict: a warm-up, and the fewest rounds."""
NONE: Mapping[str, float] = MappingProxyType({})
ONCE: Mapping[str, int] = MappingProxyType({})
NO_INTERVALS: Mapping[str, Interval] = MappingProxyType({})
NO_LIMITS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Units:
    """What the operations of cases take by themselves, and which of it each case is made of."""

    launches: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """By name, calls that hand over a device's whole share of a case as one unit, for example `ops.as_unit` of a
    function in one `launch`."""
    of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By case, the units that could run at the same time: the longest of them is the case's bare time."""


NO_UNITS = Units()


def time_in_turn(
    backend: Backend,
    work: Mapping[str, Callable[[], object]],
    rounds: int,
    repeats: Mapping[str, int] = ONCE,
    units: Units = NO_UNITS,
    budget: float = math.inf,
) -> dict[str, Case]:
    """Time each piece of work on idle devices, all of them in turn in every round; return the cases by name.

    `repeats` is how often a piece does what its case is named after, if that is more than once: a case is of once, and
    its units are of all. There are fewer rounds if they would take more than the budget of seconds.
    """

    def take(fn: Callable[[], object], times: int) -> Timing:
        dispatched, done = measure(backend, fn)
        return dispatched / times, done / times

    takes = {name: partial(take, fn, repeats.get(name, 1)) for name, fn in work.items()}
    return take_in_turn(backend, takes, rounds, repeats, units, budget)


def take_in_turn(
    backend: Backend,
    takes: Mapping[str, Callable[[], Timing]],
    rounds: int,
    repeats: Mapping[str, int] = ONCE,
    units: Units = NO_UNITS,
    budget: float = math.inf,
) -> dict[str, Case]:
    """Do as `time_in_turn` with work that times itself, and returns the seconds of doing it once."""
    # Units stand among the cases, so that a drift of the machine affects all alike.
    alone = {f"{name}, as one unit": partial(measure, backend, fn) for name, fn in units.launches.items()}
    taken = {case.name: case for case in interleave({**takes, **alone}, rounds, budget=budget)}

    def bare(name: str) -> tuple[float, ...]:
        parts = [taken[f"{unit}, as one unit"].seconds for unit in units.of.get(name, ())]
        return tuple(max(at_once) / repeats.get(name, 1) for at_once in zip(*parts, strict=True))

    return {name: replace(taken[name], repeats=repeats.get(name, 1), bare_seconds=bare(name)) for name in takes}


def with_parts(together: Case, parts: Iterable[Case]) -> Case:
    """Return a case that contains all the work of others, and so cannot be faster than any of them."""
    return replace(together, parts=tuple(part.name for part in parts))


def run_elsewhere(
    experiment: str, backend: Backend, threads: int, options: Mapping[str, str | float | Sequence[str]]
) -> Result:
    """Run an experiment on one CPU device of so many threads in a fresh process; see `measure_elsewhere`."""
    same = {"backend": backend.name, "engine": backend.engine, "variant": backend.variants}
    return measure_elsewhere(experiment, {**same, "devices": 1, "device-kind": "cpu", "threads": threads, **options})


def refuse_single_device(backend: Backend, experiment: str, what_it_does: str) -> None:
    """Raise RequestError if there is one device only, for an experiment that needs two."""
    if len(backend.devices) < 2:
        raise RequestError(f"the experiment {experiment!r} {what_it_does}: it needs at least 2 devices (--devices 2)")


def largest_error(found: Iterable[np.ndarray], expected: Iterable[np.ndarray]) -> float:
    """Return the largest relative error of several arrays: infinite if shapes differ, NaN if one holds it."""
    return largest_of([relative_error(*pair) for pair in zip(found, expected, strict=True)])


def result_of(
    experiment: str,
    backend: Backend,
    *,
    parameters: Mapping[str, Any],
    cases: Sequence[Case],
    metrics: Mapping[str, float],
    explanation: str,
    answer: Answer | None = None,
    error: float,
    compared: str,
    of: str = "the largest element",
    limit: float = 1e-4,
    checks: Mapping[str, float] = NONE,
    intervals: Mapping[str, Interval] = NO_INTERVALS,
    limits: Mapping[str, float] = NO_LIMITS,
    problems: Sequence[str] = (),
    judges_times: bool = True,
    **described: Any,
) -> Result:
    """Return an experiment's result: invalid if values are not NumPy's, or a case is faster than its parts.

    The latter is a disturbance, not an error of the program: the verdict is withheld, and the times are marked.

    The sentences of `answer` go on after the explanation: in the result's answer that comes first. Of an invalid
    result, and of one whose verdict is withheld, the answer says only that, and why.

    `error` is the largest difference of what is `compared` from NumPy's, as a share `of` something; `intervals`
    are those of metrics that have one, and `limits` what some of these cannot exceed: if one is shown to, the result is
    invalid. `problems` are further ones, and `described`
    are further fields of the result. If it judges times, the explanation says so if the budget allowed too few rounds,
    and all that is said of them is withheld if others took too much of the cores.
    """
    limited = {name: Limit(most, intervals[name]) for name, most in limits.items()}
    by_name = {case.name: case for case in cases}
    impossible = (why_impossible(case, [by_name[part] for part in case.parts]) for case in cases if case.parts)
    excesses = {name: about_excess(name, limit) for name, limit in limited.items()}
    believed = [excess for name, excess in excesses.items() if excess and limited[name].is_believed]
    beyond = [excess for name, excess in excesses.items() if excess and not limited[name].is_believed]
    disturbances = (*filter(None, impossible), *beyond)
    missing = _rounds_missing(cases, parameters)
    # The other ranks of a job on this host would be taken for strangers.
    watch = None if isinstance(backend, GroupedBackend) else _watch_over(cases)
    withheld = _withheld(disturbances, watch if judges_times else None)
    said = described.pop("notes", ())
    wrong = (*(() if error < limit else (f"{compared} differ from NumPy's by {error:.1e} of {of}",)), *problems)
    told = _in_one(withheld) if withheld else _hedged(explanation) if missing and judges_times else explanation
    return Result(
        experiment=experiment,
        backend=describe_backend(backend, parameters.get("size")),
        parameters=parameters,
        cases=tuple(cases),
        metrics=metrics,
        metric_intervals={
            name: (interval.low, interval.high)
            for name, interval in intervals.items()
            if math.isfinite(interval.low + interval.high)
        },
        checks={"max_relative_error": error, **checks},
        explanation=told,
        answer=answer and (_about_wrong(wrong) or withheld or replace(answer, sentences=(told, *answer.sentences))),
        notes=(*(() if withheld else (*said, *believed)), *missing),
        problems=(*wrong, *disturbances),
        disturbances=disturbances,
        machine_watch=watch,
        **described,
    )


def allows_verdict(cases: Sequence[Case]) -> bool:
    """Return whether others left so much of the cores that the cases' times say something; true if nobody watched."""
    watch = _watch_over(cases)
    return watch is None or watch.allows_verdict


def _watch_over(cases: Sequence[Case]) -> MachineWatch | None:
    """Put together what was watched while the cases were timed; those of one interleaving share a watch."""
    watches = {id(case.watch): case.watch for case in cases if case.watch is not None}
    return joined_watches(tuple(watches.values()))


def _withheld(disturbances: Sequence[str], watch: MachineWatch | None) -> Answer | None:
    """Return what is said in place of a verdict that a disturbed machine does not allow; None if it does."""
    if disturbances:
        return Answer(
            ("No verdict: times were measured that cannot be true, so no time and no metric here is to be believed.",),
            "Other work disturbed the machine: measure again when it has ended, or with more --rounds and --budget.",
        )
    if watch is None or watch.allows_verdict:
        return None
    taken = percent(watch.taken_share)
    return Answer(
        (f"No verdict: other work took {taken} of the cores' time, so these times say little about what was timed.",),
        "A quiet machine: measure again when the other work has ended.",
    )


def _about_wrong(problems: Sequence[str]) -> Answer | None:
    """Return what an invalid result answers; None if nothing is wrong."""
    if not problems:
        return None
    return Answer(
        (f"No answer: the result is invalid, because {problems[0]}.",),
        "An error to be mended in the backend or in the program: no other machine and no option gives an answer.",
    )


def _in_one(answer: Answer) -> str:
    return " ".join((*answer.sentences, answer.would_change))


def _hedged(explanation: str) -> str:
    return f"Too few rounds for a verdict. {explanation}"


def _rounds_missing(cases: Sequence[Case], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Say that the budget was too short for a verdict, if it allowed fewer rounds than that takes."""
    budget, wanted = parameters.get("budget"), parameters.get("rounds", 0)
    taken = min((len(case.seconds) for case in cases), default=0)
    if budget is None or taken >= min(FEWEST_FOR_A_VERDICT, wanted):
        return ()
    allowed = f"The budget of {budget:g} s allowed {taken} of {wanted} rounds"
    return (f"{allowed}: too few to tell a difference from noise (--budget gives more).",)
