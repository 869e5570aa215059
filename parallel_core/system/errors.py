"""Errors that the user reads in one line, and the exit statuses of the program.

A request that cannot be met ends the program with REFUSED, a run that failed with 1, and a run that
a busy machine disturbed with DISTURBED.
"""

from backends import BackendError, ComputationError

REFUSED = 2
"""The exit status of a request that cannot be met, for example because a framework is missing."""
FAILED = 1
"""The exit status of a run that failed."""
DISTURBED = 3
"""The exit status of a run whose numbers are right, but whose times must be measured again."""


class RequestError(ValueError):
    """The request cannot be met; the message says what to change."""


class MeasurementError(RuntimeError):
    """The run failed after it had begun."""


class DisturbedError(MeasurementError):
    """The numbers are right, but the times must be measured again on a quieter machine."""


def message_and_status(error: Exception | SystemExit) -> tuple[str, int]:
    """Return an error's message, in one line, and the exit status; raise a bug again."""
    match error:
        case DisturbedError():
            message, status = str(error), DISTURBED
        case OSError() if error.filename and error.strerror:
            message, status = f"{error.filename}: {error.strerror}", FAILED
        case ComputationError() | MeasurementError() | OSError() | MemoryError():
            message, status = str(error) or type(error).__name__, FAILED
        case BackendError() | RequestError():
            message, status = str(error), REFUSED
        case SystemExit():
            # Our own code returns a status, so it was a backend that called sys.exit.
            message, status = f"the backend called sys.exit({error.code!r})", REFUSED
        case _:
            raise error
    return " ".join(message.split()), status
