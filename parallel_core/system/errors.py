"""Errors that the user reads in one line, and the exit statuses of the program.

A request that cannot be met ends the program with REFUSED, a run that failed with 1, and a run that
a busy machine disturbed with DISTURBED.
"""

REFUSED = 2
"""The exit status of a request that cannot be met, for example because a framework is missing."""
DISTURBED = 3
"""The exit status of a run whose numbers are right, but whose times must be measured again."""


class RequestError(ValueError):
    """The request cannot be met; the message says what to change."""


class MeasurementError(RuntimeError):
    """The run failed after it had begun."""


class DisturbedError(MeasurementError):
    """The numbers are right, but the times must be measured again on a quieter machine."""
