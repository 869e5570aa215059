"""What is declared of a measurement, and what it reports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from benchmarks.harness.side_by_side import Measured
from benchmarks.harness.targets import Finding


@dataclass(frozen=True)
class Method:
    """How something is measured. The number rises whenever figures may differ by the method alone:
    what was measured by another number must not be compared.
    """

    number: int
    since: str
    """The day of its first use, such as 2026-11-29."""
    meaning: str
    """What this number means, in a line."""


@dataclass(frozen=True)
class Request:
    """How much is asked of a measurement; `quick` is a rehearsal with next to no work."""

    rounds: int
    quick: bool = False
    stored: Mapping[str, Any] = field(default_factory=dict)
    """The JSON that the file holds before, for what is added to it."""


@dataclass(frozen=True)
class Report:
    """What was measured so far. `notes` are sentences or tables made from the numbers, `data`
    further keys of the JSON.
    """

    findings: Sequence[Finding] = ()
    processes: Mapping[str, Sequence[Measured]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """A measurement: what it is, how often it is repeated, and where its JSON goes."""

    file: str
    """Within a machine's folder of results, without suffix; `{NAME}` stands for an argument."""
    title: str
    question: str
    method: Method
    measure: Callable[..., Iterator[Report]]
    """Takes a Request, and the arguments that `options` declare. Each report that it yields is
    written at once, in place of the one before.
    """
    rounds: int = 3
    options: Sequence[Callable[..., Any]] = ()
    """What `click.option` and `click.argument` return."""

    @property
    def name(self) -> str:
        """The word by which it is run, and the stem of its file."""
        return PurePath(self.file).name.partition("-{")[0]
