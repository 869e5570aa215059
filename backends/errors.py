"""What can go wrong, in two words: the request was wrong, or the computation was."""

__all__ = ["BackendError", "ComputationError"]


class BackendError(Exception):
    """The request cannot be met: unknown or missing framework, impossible devices, settings that came too late."""


class ComputationError(BackendError):
    """A launched computation failed; the backend refuses further work, since later results would be garbage."""
