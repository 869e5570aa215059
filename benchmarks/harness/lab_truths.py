"""Times whose truth is known: which bands a metric of them may lie in. `lab_self_test` counts how often that is missed.

Bands that no truth names would be claims that nobody checks: a test finds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import Formula, Metric, interval_of, ratio
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case, Result

__all__ = ["TRUTHS", "Timed", "Truth"]

Timed = Mapping[str, Case]
CORES = {"possible_on_cores_fraction": 0.5}
WORKERS = {"workers": "1,2"}


@dataclass(frozen=True)
class Truth:
    """Usual seconds of cases, of which the last contains the others, and the bands that are true of a metric."""

    lab: str
    metric: str
    seconds: Mapping[str, float]
    right: tuple[str, ...]
    """Codes: one if the band must be found, several if the truth lies between them, where none is found either."""
    dispatched: float = 0.01
    """The share of each time after which control returns."""
    engine: str = "async"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """Other figures of the result, on which `share` depends."""
    formula: Formula | None = None
    """In place of the metric's own, if the program chooses what it compares."""

    @property
    def name(self) -> str:
        """The metric and the bands."""
        return f"{self.metric} {' or '.join(self.right)}"

    @property
    def declared(self) -> Metric:
        """The metric as its experiment declares it."""
        return EXPERIMENTS[self.lab].metric_named(self.metric)

    def band_of(self, cases: Timed) -> str | None:
        """Return the code of the band that these times are said to lie in; None if it stays open."""
        declared = self.declared
        interval = (
            declared.measured(cases)
            if self.formula is None
            else interval_of(self.formula, cases, is_ratio=True, noise=declared.noise)
        )
        assert interval is not None
        band = declared.place(interval, self._result(cases, interval))
        return band and band.code

    def _result(self, cases: Timed, interval: Interval) -> Result:
        return Result(
            experiment=self.lab,
            backend={"name": "any", "engine": self.engine, "devices": ["cpu:1", "cpu:2"]},
            parameters=self.parameters,
            cases=tuple(cases.values()),
            metrics={**self.figures, self.metric: interval.estimate},
            metric_intervals={name: (value, value) for name, value in self.figures.items()},
            checks={},
            explanation="",
            environment={},
        )


ALONE = ("on cpu:1 alone", "on cpu:2 alone", "on all together")
OVERLAP = ("run", "copy", "run and copy together")
BOOK = ("run", "copy the book's way", "together the book's way")
THREE = ("products on cpu:1", "products on cpu:2", "copies both ways", "all at once")
WAITS = ("wait for one result", "waitall")
TWO = ("slow", "fast")
FASTER = ratio(*TWO)
"""Where the program chooses which two cases it compares."""


def _of(names: tuple[str, ...], *seconds: float) -> dict[str, float]:
    return dict(zip(names, seconds, strict=True))


def _two(lab: str, metric: str, right: str, by: float, **known: Any) -> Truth:
    """Make the truth of a figure that is the ratio of two cases."""
    return Truth(lab, metric, _of(TWO, by, 1), (right,), formula=FASTER, **known)


TRUTHS = (
    Truth("async", "dispatch_fraction", {"10 products": 1}, ("queued",)),
    Truth("async", "dispatch_fraction", {"10 products": 1}, ("partly",), dispatched=0.5),
    Truth("async", "dispatch_fraction", {"10 products": 1}, ("not-queued",), dispatched=1.0),
    Truth("async", "wait_fraction", _of(WAITS, 0.1, 1), ("selective",)),
    Truth("async", "wait_fraction", _of(WAITS, 1, 1), ("not-selective",)),
    Truth("parallel", "parallel_speedup", _of(ALONE, 1, 1, 2.8), ("hindered",)),
    Truth("parallel", "parallel_speedup", _of(ALONE, 1, 1, 2), ("serial",)),
    Truth("parallel", "parallel_speedup", _of(ALONE, 1, 1, 1.33), ("partly",)),
    Truth("parallel", "parallel_speedup", _of(ALONE, 1, 1, 1), ("parallel",)),
    Truth("overlap", "overlap_efficiency", _of(OVERLAP, 1, 1, 2.8), ("hindered",)),
    Truth("overlap", "overlap_efficiency", _of(OVERLAP, 1, 1, 2), ("serial",)),
    Truth("overlap", "overlap_efficiency", _of(OVERLAP, 1, 1, 1.5), ("partly",)),
    Truth("overlap", "overlap_efficiency", _of(OVERLAP, 1, 1, 1), ("hidden",)),
    Truth("overlap", "overlap_efficiency", _of(OVERLAP, 1, 1, 1), ("without-queue",), engine="sync"),
    Truth("overlap", "book_overlap_efficiency", _of(BOOK, 1, 1, 2), ("serial",)),
    Truth("overlap", "book_overlap_efficiency", _of(BOOK, 1, 1, 1), ("hidden",)),
    Truth("three-way", "saved_fraction", _of(THREE, 1, 1, 1, 3.8), ("hindered",), figures=CORES),
    Truth("three-way", "saved_fraction", _of(THREE, 1, 1, 1, 3), ("serial",), figures=CORES),
    Truth("three-way", "saved_fraction", _of(THREE, 1, 1, 1, 2.25), ("partly",), figures=CORES),
    Truth("three-way", "saved_fraction", _of(THREE, 1, 1, 1, 1.5), ("parallel",), figures=CORES),
    _two("independent-ops", "parallel_speedup", "hindered", 0.6, parameters=WORKERS),
    _two("independent-ops", "parallel_speedup", "serial", 1.0, parameters=WORKERS),
    _two("independent-ops", "parallel_speedup", "parallel", 1.9, parameters=WORKERS),
    _two("independent-ops", "independence_speedup", "in-order", 1.0),
    _two("independent-ops", "independence_speedup", "parallel", 2.0),
    _two("independent-ops", "threads_speedup", "unchanged", 1.0),
    _two("independent-ops", "threads_speedup", "faster", 2.0),
    _two("small-ops", "small_speedup", "hindered", 0.5),
    _two("small-ops", "small_speedup", "no-help", 1.0),
    _two("small-ops", "small_speedup", "partly", 1.5),
    _two("small-ops", "small_speedup", "parallel", 2.0),
    _two("small-ops", "small_advantage_over_threads", "neither", 1.0),
    _two("small-ops", "small_advantage_over_threads", "launches", 2.0),
    _two("dependencies", "bound_fraction", "slower", 0.6),
    _two("dependencies", "bound_fraction", "near", 1.0),
    _two("dependencies", "speedup", "cost", 0.7),
    _two("dependencies", "speedup", "no-difference", 1.0),
    _two("dependencies", "speedup", "paid", 2.0),
    _two("batch-scaling", "scaled_batch_speedup", "more", 1.6),
    _two("batch-scaling", "scaled_batch_scaling_efficiency", "serial", 0.5),
    _two("batch-scaling", "scaled_batch_scaling_efficiency", "parallel", 1.0),
    _two("evaluate", "evaluation_speedup", "faster", 2.0),
    _two("allreduce", "native_speedup_over_star", "faster", 2.0),
    _two("allreduce", "native_speedup_over_star", "equal", 1.0),
    _two("allreduce", "spread_roots_speedup", "slower", 0.5),
    _two("partitioning", "data_parallel_advantage", "equal", 1.0),
    _two("partitioning", "data_parallel_advantage", "faster", 2.0),
    _two("batch-norm", "synchronising_cost", "equal", 1.0),
    _two("batch-norm", "synchronising_cost", "slower", 2.0),
)
