"""What can go wrong, in two words: the request was wrong, or the computation was."""

__all__ = ["BackendError", "ComputationError", "message_of"]


class BackendError(Exception):
    """The request cannot be met: unknown or missing framework, impossible devices, settings that came too late."""


class ComputationError(BackendError):
    """A launched computation failed; the backend refuses further work, since later results would be garbage."""


def message_of(error: BaseException) -> str:
    """Return an exception's message, or what `__str__` raised instead: the failure itself must not be lost by that."""
    try:
        return str(error)
    except BaseException as unreadable:
        return f"no message, for its __str__ raised {type(unreadable).__name__}"
