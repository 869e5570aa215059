"""A result that was written is read as it was; what is no number stays none."""

import math
from dataclasses import replace

from parallel_core.measurement.result import Result
from tests.parallel_core.comparison.made_up import parallel, result


def test_a_number_that_json_does_not_have_is_read_as_none() -> None:
    made = result(parallel("torch"), {"on all together": 1.0})
    written = replace(made, metrics={"speedup": math.nan, "other": 2.0}, series={"loss": (1.0, math.inf)})
    read = Result.from_json(written.as_json())
    assert math.isnan(read.metrics["speedup"])
    assert (read.metrics["other"], read.series["loss"][0], math.isnan(read.series["loss"][1])) == (2.0, 1.0, True)
