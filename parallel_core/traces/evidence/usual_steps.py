"""How long exchanges and copies ran, and how long of that not hidden: in all steps, and without the
exceptional ones.

On a busy machine one step may hold more time that is not hidden than all others together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backends.profiling.timeline import Window
from parallel_core.traces.case_spans import CaseSpans, intersection, total_length
from parallel_core.traces.evidence.communication import Communication
from parallel_core.traces.steps.figures import step_windows

RARE = 0.25
"""Of the steps: what is not hidden in fewer is an exception, such as the recording's beginning. Of
the steps in which a kind runs, those in which it is hidden least may be exceptions, up to this
share.
"""


class Times(NamedTuple):
    """How long some operations ran, in nanoseconds.

    Of several devices that exchange it is the mean, as in `Parts`.
    """

    whole: float
    alone: float
    """How long of that nothing hid them."""
    nanoseconds: int
    """The length of all that is looked at."""


def times_of(case: CaseSpans, mask: np.ndarray, groups: Sequence[Communication]) -> Times:
    """Return how long the operations that a mask selects ran, and how long of that not hidden."""
    whole, alone, devices = 0, 0, 0
    for places, free in groups:
        covered = case.covered(places[mask[places]])
        whole += total_length(covered)
        alone += total_length(intersection(covered, free))
        devices += len(covered) > 0
    return Times(whole / max(devices, 1), alone / max(devices, 1), case.nanoseconds)


def times_in_usual_steps(
    case: CaseSpans,
    mask: np.ndarray,
    groups: Sequence[Communication],
    places: np.ndarray,
    exposed: np.ndarray,
) -> Times:
    """Return the times of a kind without the steps that may be exceptions.

    The mask selects the kind's operations. `places` are those of them that were not hidden, and
    `exposed` says for how many nanoseconds.
    """
    windows = step_windows(case.annotations)
    of_kind = np.flatnonzero(mask)
    step_of = steps_of(windows, case.since[of_kind])
    steps = np.unique(step_of)
    exceptions = int(RARE * len(steps))
    time_of_step = np.bincount(
        steps_of(windows, case.since[places]), exposed, minlength=len(windows) + 1
    )
    by_time = steps[np.argsort(time_of_step[steps], kind="stable")]
    usual, exceptional = np.split(by_time, [len(steps) - exceptions])

    in_usual_steps = np.zeros(len(case.spans), bool)
    in_usual_steps[of_kind[np.isin(step_of, usual)]] = True
    times = times_of(case, in_usual_steps, groups)
    # What was launched before the first step has no window.
    left_out = [windows[step - 1] for step in exceptional.tolist() if step > 0]
    left_out_time = sum(window.end - window.start for window in left_out)
    return times._replace(nanoseconds=case.nanoseconds - left_out_time)


def steps_of(windows: Sequence[Window], launched: np.ndarray) -> np.ndarray:
    """Return the number of the step in which each launch lies, from 1; 0 before the first step."""
    return np.searchsorted([window.start for window in windows], launched, side="right")
