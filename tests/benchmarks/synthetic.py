"""Results of benchmarks that nobody ran."""

from benchmarks.harness.findings import Report
from benchmarks.harness.side_by_side import Measured
from benchmarks.harness.targets import Finding, Target
from parallel_core.measurement.confidence_intervals import Interval

__all__ = ["REPORT", "measured"]


def measured(**seconds: tuple[float, ...]) -> Measured:
    return Measured(seconds, {}, {"torch": "2"}, kernels={"torch": ["MKL 2024.2"]})


REPORT = Report(
    "A title",
    [
        Finding("good", Interval(2.1, 2.05, 2.2), target=Target("at least", 2.0)),
        Finding("bad", Interval(1.3, 1.2, 1.4), target=Target("at most", 1.02)),
        Finding("rate", Interval(1234.0, float("-inf"), float("inf")), "images/s"),
    ],
    {"A": [measured(a=(1.0,))]},
    ["A note."],
)
