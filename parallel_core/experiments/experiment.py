"""What the command line, a comparison and a report know of an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from parallel_core.measurement.sweep import Curves

__all__ = ["Experiment", "Mode"]

Mode = Literal["full", "quick"]


@dataclass(frozen=True)
class Experiment:
    """An experiment as the command line, a comparison and a report know it."""

    name: str
    chapter: str
    question: str
    case: str
    """The case whose times a comparison sets side by side first."""
    metric: str
    """The figure that answers the question."""
    queued_case: str
    """The case that shows best how far control returns before all is done."""
    calibrated: tuple[str, ...] = ()
    """Parameters that a run chooses to suit the machine; a comparison gives the same ones to all its cells."""
    options: Mapping[Mode, Mapping[str, int | str]] = field(default_factory=dict)
    """The options that a comparison runs it with, in full and with --quick."""
    exercise: str = ""
    """The exercise, figure or remark of the chapter that it answers; empty for the chapters' own demonstrations."""
    devices: int = 2
    """Logical devices that it takes where nobody says; a comparison gives it as many at least."""
    curves: Curves | None = None
    """What is drawn of its series, where it sweeps over something."""

    @property
    def module(self) -> str:
        """The module in `parallel_core.experiments` that holds it, and explains it."""
        # `async` is a word of the language.
        own = "asynchronous" if self.name == "async" else self.name.replace("-", "_")
        return f"{self.chapter.lower().replace(' ', '_')}.{own}"
