"""`parallel-core` and `python -m parallel_core`: run the command line; every error is one line and an exit status."""

import io
import os
import sys
from typing import NoReturn

import click

from backends import BackendError, ComputationError
from parallel_core.command_line import cli
from parallel_core.errors import MeasurementError, RequestError
from parallel_core.interrupt import INTERRUPTED, end_soon_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command line with this process's arguments, and exit: 0, 1 for a failed run, 2 for a bad request."""
    end_soon_on_interrupt()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no “×” shows a question mark; that is no reason to lose a result.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        status = cli.main(prog_name="parallel-core", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = 2
    except click.ClickException as error:
        status = complain(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        leave_at_once()
    except (ComputationError, MeasurementError, OSError, MemoryError) as error:
        status = complain(str(error) or type(error).__name__, 1)
    except (BackendError, RequestError) as error:
        status = complain(str(error), 2)
    sys.exit(status)


def complain(message: str, status: int) -> int:
    """Say what is wrong, in one line, and return the exit status."""
    click.echo(f"parallel-core: {' '.join(message.split())}", err=True)
    return status


def leave_at_once() -> NoReturn:
    """Leave without waiting for the frameworks, whose queues may take minutes to drain."""
    complain("interrupted", INTERRUPTED)
    sys.stdout.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
