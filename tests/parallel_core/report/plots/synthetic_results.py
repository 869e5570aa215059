"""Synthetic results of each kind that has a picture of its own."""

from dataclasses import replace

from parallel_core.compare.results import Cell
from parallel_core.measurement.result import Result
from tests.parallel_core.compare.made_up import result

NASTY = "<script>alert(1)</script>"


def synthetic(experiment: str, **series: tuple[float, ...]) -> Result:
    """Return a result of torch with two cases, of which the first tries to be markup."""
    cell = Cell(experiment, "torch", "async")
    untold = result(cell, {"first <b>case</b>": 0.1, "second": 0.2})
    return replace(untold, series=series, explanation=NASTY)


TRAINED = synthetic("data-parallel", loss=(2.0, 1.0), test_accuracy=(0.5,))
SWEPT = synthetic(
    "allreduce",
    **{
        "bytes": (4096.0, 16384.0),
        "algbw_gb_per_s plain copy": (1.0, 2.0),
        "algbw_gb_per_s star": (0.5, 0.7),
    },
)
TIMED = synthetic("parallel")
