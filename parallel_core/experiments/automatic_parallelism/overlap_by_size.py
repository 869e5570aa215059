"""Overlap over the size of the matrices: the smaller they are, the more of the copies' time goes
into issuing them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from parallel_core.experiments import copying
from parallel_core.experiments.runner.formulas import Times, hidden_share
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.sweep import Curves

SIZES = Parameter(
    "Several sides, each with separate copies, for a table; --size is the largest.", sweeps="size"
)
CURVES = Curves(
    over="size",
    quantity="share",
    x_title="side of the matrices",
    y_title="share",
    in_place_of_times=False,
    caption="Hidden: the share of the shorter part that is hidden, overlap_efficiency. Issuing: "
    "the share of the "
    "copies' time after which Python has issued them; near 1 it is Python's time.",
)
AtSize: TypeAlias = Callable[[int, int, str], None]
"""Registers the cases of a size, with so many copies of each result, under names that end in
this.
"""


def register_smaller(
    trial: Trial, at_size: AtSize, sizes: Sequence[int], size: int, copies: int
) -> Mapping[str, int]:
    """Register the cases of the sizes but this one, which has so many copies.

    Return all by what their cases end in.
    """
    there, smaller = copying.destination(trial), sorted({*sizes} - {size})
    counts = {side: copying.copies_to_hide(trial, there, side).value for side in smaller}
    ends = {f", size {side}": side for side in smaller}
    for end, side in ends.items():
        at_size(side, counts[side], end)
    trial.parameters["sizes"] = ",".join(map(str, (*smaller, size)))
    trial.described["series"] = {"copies": (*map(float, counts.values()), float(copies))}
    return ends | {"": size}


def find_shares(trial: Trial, sides: Mapping[str, int], copy: str, together: str) -> None:
    """Find the hidden share at each size, and with a queue that of issuing in the time of the
    copies.
    """
    times = Times(lambda case, _: trial.cases[case].median, trial.cases)
    for end, side in sides.items():
        trial.points["hidden"][side] = float(hidden_share(together + end)(times))
        if trial.backend.engine == "async":
            copies = trial.cases[copy + end]
            trial.points["issuing"][side] = copies.dispatch_median / copies.median
