"""A trial on NumPy whose cases took given times."""

from collections.abc import Sequence
from typing import Any

import backends
from parallel_core.experiments.runner.changes import Change
from parallel_core.experiments.runner.conclusions import conclude
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.result import Case, Result

__all__ = ["case", "pretended", "trial"]


def case(name: str, *seconds: float, parts: Sequence[str] = (), **changes: Any) -> Case:
    """Return a case with these times, of which control returned after half."""
    dispatch_seconds = tuple(taken / 2 for taken in seconds)
    return Case(name, seconds, dispatch_seconds, parts=tuple(parts), **changes)


def trial(*cases: Case, devices: int = 2, rounds: int = 3, budget: float = 600.0) -> Trial:
    """Return a trial in which these cases were timed."""
    backend = backends.load("numpy", devices, threads_per_device=1)
    timed = Trial(backend, {"rounds": rounds, "budget": budget}, rounds, budget)
    timed.cases |= {case.name: case for case in cases}
    return timed


def pretended(
    experiment_trial: Trial, *metrics: Metric, changes: Sequence[Change] = (), **described: Any
) -> Result:
    """Conclude a trial of an experiment that is not in the catalogue."""
    return conclude("any", experiment_trial, metrics, changes, **described)
