"""How a rank fails: it says why and leaves at once, for frameworks would wait for the others while they shut down."""

import os
import socket
import sys
from typing import NoReturn

from backends.process_groups import GroupError
from parallel_core.jobs.messages import Failed
from parallel_core.jobs.rank.reporting import report, reports_are_read
from parallel_core.training.divergence import GradientsAreNotFiniteError

__all__ = ["leave"]


def leave(error: BaseException, message: str, status: int) -> NoReturn:
    """Report a failure, to the launcher or on standard error, and end the process."""
    if reports_are_read():
        report(Failed(message, noticed(error), status))
    else:
        rank = os.environ.get("RANK")
        who = f"rank {rank} on {socket.gethostname()}" if rank else f"a worker on {socket.gethostname()}"
        sys.stderr.write(f"parallel-core: {who}: {message}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def noticed(error: BaseException | None) -> bool:
    """Tell whether an error is only the consequence of another rank's."""
    while error is not None:
        # A sum that is not finite, of own terms that are.
        if isinstance(error, GroupError) or (isinstance(error, GradientsAreNotFiniteError) and not error.devices):
            return True
        error = error.__cause__
    return False
