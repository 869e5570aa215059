"""The doctor: it examines the frameworks and the machine, and says how to repair what is broken.

Everything that is examined becomes a finding.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.installation.frameworks import Diagnosis

FindingState = Literal["fine", "absent", "doubtful", "broken"]
"""A state: `absent` is optional and not here; `doubtful` works, but harms measurements; `broken` is
here and fails.
"""


@dataclass(frozen=True)
class Finding:
    """The state of one thing that was examined."""

    name: str
    state: FindingState
    text: str
    """The description of the thing, which is printed after its name."""
    diagnosis: Diagnosis | None = None
    """The cause and the command, if a reader should know of the state or act."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The figures for programs that read the JSON."""

    @property
    def cause_and_command(self) -> dict[str, str | None]:
        """The diagnosis as keys of the JSON; None without a cause or a command."""
        if self.diagnosis is None:
            return {"code": None, "cause": None, "command": None}
        diagnosis = self.diagnosis
        command = diagnosis.command or None
        return {"code": diagnosis.code, "cause": diagnosis.cause, "command": command}

    def as_json(self) -> dict[str, Any]:
        """Return the object of the finding in the JSON."""
        head = {"name": self.name, "state": self.state, "text": self.text}
        return {**head, **self.cause_and_command, "figures": dict(self.figures)}
