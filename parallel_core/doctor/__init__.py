"""What is installed on this machine, what is wrong with it, why, and the command that fixes it.

All that is looked at becomes a finding: its state, and a diagnosis if something can be done about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.installation.frameworks import Diagnosis

FindingState = Literal["fine", "absent", "doubtful", "broken"]
"""`absent` is optional and not here; `doubtful` works, though not as one would expect; `broken` is here and fails."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `figures` are for programs."""

    name: str
    state: FindingState
    text: str
    diagnosis: Diagnosis | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cause_and_command(self) -> dict[str, str | None]:
        """The diagnosis as keys of the JSON; both are null if there is none."""
        return {key: getattr(self.diagnosis, key, None) for key in ("cause", "command")}

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands in a section's `findings`."""
        head = {"name": self.name, "state": self.state, "text": self.text}
        return {**head, **self.cause_and_command, "figures": dict(self.figures)}
