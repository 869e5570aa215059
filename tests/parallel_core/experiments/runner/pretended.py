"""A trial on NumPy whose cases took given times."""

from collections.abc import Sequence

import backends
from parallel_core.experiments.runner.conclusions import conclude
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.result import Case, Result

__all__ = ["case", "pretended", "trial"]


def case(name: str, *seconds: float, parts: Sequence[str] = (), **changes: object) -> Case:
    """Return a case with these times, of which control returned after half."""
    return Case(name, seconds, tuple(taken / 2 for taken in seconds), parts=tuple(parts), **changes)  # type: ignore[arg-type]


def trial(*cases: Case, devices: int = 2, rounds: int = 3, budget: float = 600.0) -> Trial:
    """Return a trial in which these cases were timed."""
    made = Trial(
        backends.load("numpy", devices, threads_per_device=1),
        {"rounds": rounds, "budget": budget},
        rounds,
        budget,
    )
    made.cases |= {one.name: one for one in cases}
    return made


def pretended(experiment_trial: Trial, *metrics: Metric, **described: object) -> Result:
    """Conclude a trial of an experiment that is not in the catalogue."""
    return conclude("any", experiment_trial, metrics, described.pop("changes", ()), **described)  # type: ignore[arg-type]
