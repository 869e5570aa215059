"""Errors that are told to the user in one line: a request that cannot be met (exit status 2), a run that failed (1)."""

__all__ = ["MeasurementError", "RequestError"]


class RequestError(ValueError):
    """The request cannot be met; its text says what to change."""


class MeasurementError(RuntimeError):
    """The run was begun and failed."""
