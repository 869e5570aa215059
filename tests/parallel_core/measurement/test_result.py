"""A result that was written is read as it was; what is no number stays none, and impossible times are refused."""

import math
from dataclasses import replace
from typing import Any

import pytest

from parallel_core.measurement.result import Case, Result
from tests.parallel_core.comparison.made_up import parallel, result

MADE = result(parallel("torch"), {"on all together": 1.0})


def test_a_number_that_json_does_not_have_is_read_as_none() -> None:
    written = replace(MADE, metrics={"speedup": math.nan, "other": 2.0}, series={"loss": (1.0, math.inf)})
    read = Result.from_json(written.as_json())
    assert math.isnan(read.metrics["speedup"])
    assert (read.metrics["other"], read.series["loss"][0], math.isnan(read.series["loss"][1])) == (2.0, 1.0, True)


@pytest.mark.parametrize(
    "changed", [{"seconds": ()}, {"seconds": (0.0,)}, {"dispatch_seconds": (-1.0,)}, {"repeats": 0}, {"share": 0.0}]
)
def test_impossible_times_are_refused(changed: dict[str, Any]) -> None:
    written = replace(MADE, cases=(replace(Case("any", (1.0,), (0.5,)), **changed),))
    with pytest.raises(ValueError, match="case 'any'"):
        Result.from_json(written.as_json())
