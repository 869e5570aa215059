"""What every experiment does: time work in turn, hold values against NumPy's, and put all of it in a result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from backends import Backend
from parallel_core.errors import RequestError
from parallel_core.measurement.checks import largest_of, relative_error, why_impossible
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.result import Case, Result, describe_backend
from parallel_core.measurement.timing import Timing, interleave, measure

__all__ = ["largest_error", "refuse_single_device", "result_of", "run_elsewhere", "time_in_turn", "with_parts"]

NONE: Mapping[str, float] = MappingProxyType({})
ONCE: Mapping[str, int] = MappingProxyType({})


def time_in_turn(
    backend: Backend, work: Mapping[str, Callable[[], object]], rounds: int, repeats: Mapping[str, int] = ONCE
) -> dict[str, Case]:
    """Time each piece of work on idle devices, all of them in turn in every round; return the cases by name.

    `repeats` is how often a piece does what its case is named after, if that is more than once: a case is of once.
    """

    def take(name: str) -> Timing:
        dispatched, done = measure(backend, work[name])
        return dispatched / repeats.get(name, 1), done / repeats.get(name, 1)

    cases = interleave({name: partial(take, name) for name in work}, rounds)
    return {case.name: replace(case, repeats=repeats.get(case.name, 1)) for case in cases}


def with_parts(together: Case, parts: Iterable[Case]) -> Case:
    """Return a case that contains all the work of others, and so cannot be faster than any of them."""
    return replace(together, parts=tuple(part.name for part in parts))


def run_elsewhere(
    experiment: str, backend: Backend, threads: int, options: Mapping[str, str | int | Sequence[str]]
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
    error: float,
    compared: str,
    of: str = "the largest element",
    limit: float = 1e-4,
    checks: Mapping[str, float] = NONE,
    problems: Sequence[str] = (),
    **described: Any,
) -> Result:
    """Return an experiment's result: invalid if a case is faster than its parts, or values are not NumPy's.

    `error` is the largest difference of what is `compared` from NumPy's, as a share `of` something; `problems` are
    further ones, and `described` are further fields of the result.
    """
    by_name = {case.name: case for case in cases}
    disturbed = (why_impossible(case, [by_name[part] for part in case.parts]) for case in cases if case.parts)
    wrong = () if error < limit else (f"{compared} differ from NumPy's by {error:.1e} of {of}",)
    return Result(
        experiment=experiment,
        backend=describe_backend(backend),
        parameters=parameters,
        cases=tuple(cases),
        metrics=metrics,
        checks={"max_relative_error": error, **checks},
        explanation=explanation,
        problems=(*filter(None, disturbed), *wrong, *problems),
        **described,
    )
