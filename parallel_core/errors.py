"""Errors that the user reads in one line: a request that cannot be met (exit status 2), a run that failed (1)."""

__all__ = ["MeasurementError", "RequestError"]


class RequestError(ValueError):
    """The request cannot be met; the text says what to change."""


class MeasurementError(RuntimeError):
    """The run failed after it had begun."""
