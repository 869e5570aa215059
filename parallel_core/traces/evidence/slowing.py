"""Which exchanges and copies are slowed down by the computation beside them.

A trace has no sizes, so only operations are compared that come in the same place of each step: in
some steps computation runs beside them, in others none does. One that takes longer for another
reason, such as a late partner, may reach into the computation behind it. So computation counts only
in the time that the operation takes alone. Such reasons only make an operation longer, so that on
either side the time counts which a quarter of the operations do not exceed.
"""

from collections.abc import Sequence

import numpy as np

from parallel_core.traces.case_spans import CaseSpans, groups_of
from parallel_core.traces.evidence.communication import Communication, exposed_within
from parallel_core.traces.evidence.interference import ALONE, BESIDE
from parallel_core.traces.evidence.usual_steps import steps_of
from parallel_core.traces.steps.figures import step_windows

SLOWED = 1.3
"""An operation is slowed down that takes this many times as long beside computation as without."""
FEWEST = 2
"""The least number of steps in which an operation runs beside computation, and of those in which it
does not.
"""


def slowed(
    case: CaseSpans, groups: Sequence[Communication], places: np.ndarray, exposed: np.ndarray
) -> np.ndarray:
    """Return which operations ran beside computation, and took longer than in steps without it.

    `places` are the operations of the groups, and `exposed` says how many nanoseconds of each lay
    beside no computation.
    """
    is_slowed = np.zeros(len(places), bool)
    windows = step_windows(case.annotations)
    if not windows:
        return is_slowed
    steps = steps_of(windows, case.since[places])
    lengths = case.lengths[places]
    is_alone = exposed >= (1 - ALONE) * lengths
    comparable = _in_the_same_place(case, places, steps)

    # How long each takes in steps in which nothing is computed beside it; 0 if there are too few.
    usual = np.zeros(len(places), np.int64)
    for operations in comparable:
        alone = operations[is_alone[operations]]
        if len(alone) >= FEWEST:
            usual[operations] = first_quarter(lengths[alone])

    compared = np.minimum(lengths, usual)
    free = exposed_within(case, groups, places, compared)
    is_beside = (usual > 0) & (free <= (1 - BESIDE) * compared)
    for operations in comparable:
        beside = operations[is_beside[operations]]
        if len(beside) >= FEWEST:
            is_slowed[beside] = first_quarter(lengths[beside]) >= SLOWED * usual[beside[0]]
    return is_slowed


def first_quarter(times: np.ndarray) -> int:
    """Return the time that a quarter of some times do not exceed."""
    return int(np.sort(times)[len(times) // 4])


def _in_the_same_place(case: CaseSpans, places: np.ndarray, steps: np.ndarray) -> list[np.ndarray]:
    """Return an array for each name and number: the operations that are the first of that name in
    their steps, the second, and so on.

    `steps` has the number of each operation's step.
    """
    names = case.spans.name_of[places].astype(np.int64)
    number_in_step = np.empty(len(places), np.int64)
    # Operations come in the order of time.
    for of_step in groups_of(names * (steps.max(initial=0) + 1) + steps):
        number_in_step[of_step] = np.arange(len(of_step))
    return groups_of(names * (len(places) + 1) + number_in_step)
