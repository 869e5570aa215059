"""Errors that the user reads in one line, each with the exit status it ends the program with.

A request that cannot be met ends it with REFUSED, a run that failed with 1, one that a busy machine
disturbed with DISTURBED.
"""

REFUSED = 2
"""The exit status of a request that cannot be met, for example because a framework is missing."""
DISTURBED = 3
"""The exit status of a run whose numbers are right and whose times say nothing: measured again,
they may.
"""


class RequestError(ValueError):
    """The request cannot be met; the text says what to change."""


class MeasurementError(RuntimeError):
    """The run failed after it had begun."""


class DisturbedError(MeasurementError):
    """The numbers are right, but times are not to be believed: measure again on a quieter
    machine.
    """
