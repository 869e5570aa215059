"""Times whose truth is known: which bands a metric of them may lie in. `lab_self_test` counts how often that is missed.

Bands that no truth names would be claims that nobody checks: a test finds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case, Result

__all__ = ["TRUTHS", "Timed", "Truth"]

Timed = Mapping[str, Case]


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
    """Other figures of the result, of which `share` depends."""

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
        interval = self.declared.measured(cases)
        assert interval is not None
        band = self.declared.place(interval, self._result(cases, interval))
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


def _of(names: tuple[str, ...], *seconds: float) -> dict[str, float]:
    return dict(zip(names, seconds, strict=True))


TRUTHS = (
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
)
