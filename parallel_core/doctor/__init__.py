"""The doctor: which frameworks work on this machine, what is broken, and how to repair it.

Everything that is examined becomes a finding.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.installation.frameworks import Diagnosis

FindingState = Literal["fine", "absent", "doubtful", "broken"]
"""`absent` is optional and not here; `doubtful` works, and harms measurements; `broken` is here and
fails.
"""


@dataclass(frozen=True)
class Finding:
    """The state of one thing that was examined.

    `text` describes it beside its name. `diagnosis` is there if a reader should know of it or act:
    its cause is understood without the name. `figures` are for programs.
    """

    name: str
    state: FindingState
    text: str
    diagnosis: Diagnosis | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cause_and_command(self) -> dict[str, str | None]:
        """The diagnosis as keys of the JSON; null for what is not known."""
        if self.diagnosis is None:
            return {"cause": None, "command": None}
        return {"cause": self.diagnosis.cause, "command": self.diagnosis.command or None}

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands in a section's `findings`."""
        head = {"name": self.name, "state": self.state, "text": self.text}
        return {**head, **self.cause_and_command, "figures": dict(self.figures)}
