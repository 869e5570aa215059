"""All measurements, and the method by which figures of each come about today.

Whoever changes how figures come about (what is timed or counted, how intervals are made) raises the
method's number and says what it means. Pages then mark what was measured before.
"""

from collections.abc import Mapping

from benchmarks import gpu
from benchmarks.harness.measurement import Method
from benchmarks.measurements import (
    abstraction,
    allreduce,
    exercises,
    network,
    processes,
    speed,
    variants,
)
from benchmarks.trust import planted_faults, recordings, self_test, twins, under_load

OF_BENCH = (
    abstraction.MEASUREMENT,
    allreduce.MEASUREMENT,
    speed.MEASUREMENT,
)
MEASUREMENTS = (
    *OF_BENCH,
    exercises.MEASUREMENT,
    network.MEASUREMENT,
    planted_faults.MEASUREMENT,
    processes.MEASUREMENT,
    recordings.MEASUREMENT,
    self_test.MEASUREMENT,
    twins.MEASUREMENT,
    under_load.MEASUREMENT,
    variants.MEASUREMENT,
)
COMPARED = Method(2, "2026-11-29", "half of the time has to lie beside for a count of overlap")
"""That of `parallel-core compare`, which is no measurement of ours."""
METHODS: Mapping[str, Method] = {
    **{measurement.name: measurement.method for measurement in MEASUREMENTS},
    "comparison": COMPARED,
    "gpu": Method(*gpu.METHOD),
}
"""By what the name of a file of results begins with."""
