"""Why a framework cannot be used as it is installed, and the command that mends it."""

from dataclasses import dataclass

from backends.errors import BackendError

__all__ = ["Diagnosis", "InstallationError"]


@dataclass(frozen=True)
class Diagnosis:
    """A cause in one sentence, without a full stop, and the exact command that mends it."""

    cause: str
    command: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.command}"


class InstallationError(BackendError):
    """A framework cannot be used as it is installed, and the diagnosis says what to do."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.diagnosis = diagnosis
