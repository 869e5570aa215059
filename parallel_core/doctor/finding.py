"""What the doctor finds: one thing that was looked at, its state, and where it is not well what mends it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.installation.known_failures import Diagnosis

__all__ = ["Diagnosis", "Finding", "FindingState", "Section"]

FindingState = Literal["fine", "absent", "doubtful", "broken"]
"""`absent` is optional and not here; `doubtful` works, though not as one would expect; `broken` is here and fails."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `advice` is there where something can be done; `figures` are for programs."""

    name: str
    state: FindingState
    text: str
    advice: Diagnosis | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """Findings about one subject."""

    name: str
    findings: tuple[Finding, ...]
