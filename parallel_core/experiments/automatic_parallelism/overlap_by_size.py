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
TimeAtSize: TypeAlias = Callable[[int, int, str], None]
"""A function (size, copies of each result, ending) that registers the cases of a size.

The names of the cases end in `ending`.
"""


def register_smaller(
    trial: Trial, time_at_size: TimeAtSize, sizes: Sequence[int], largest: int, copies: int
) -> Mapping[str, int]:
    """Register the cases of all sizes below the largest one, whose cases are registered already.

    `copies` are those of each result at the largest size. Returns every size by the ending of its
    cases' names, which is empty for the largest one.
    """
    destination = copying.destination(trial)
    smaller_sizes = sorted(set(sizes) - {largest})
    copies_by_size: dict[int, int] = {}
    for size in smaller_sizes:
        copies_by_size[size] = copying.copies_to_hide(trial, destination, size).value
    size_by_ending: dict[str, int] = {}
    for size, copies_at_size in copies_by_size.items():
        ending = f", size {size}"
        size_by_ending[ending] = size
        time_at_size(size, copies_at_size, ending)
    size_by_ending[""] = largest
    copies_by_size[largest] = copies
    trial.parameters["sizes"] = ",".join(map(str, copies_by_size))
    trial.described["series"] = {"copies": tuple(map(float, copies_by_size.values()))}
    return size_by_ending


def find_shares(trial: Trial, size_by_ending: Mapping[str, int], copy: str, together: str) -> None:
    """Find the curves over the size: the hidden share, and with a queue the share of issuing.

    `copy` and `together` are the names of cases without the endings.
    """
    times = Times(lambda case, _: trial.cases[case].median, trial.cases)
    for ending, size in size_by_ending.items():
        share = hidden_share(together + ending)
        trial.points["hidden"][size] = float(share(times))
        if trial.backend.engine == "async":
            copies = trial.cases[copy + ending]
            trial.points["issuing"][size] = copies.dispatch_median / copies.median
