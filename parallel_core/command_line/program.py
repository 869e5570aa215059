"""The program: the command line in this process, and its exit status.

An error is printed in one line, and decides the status.
"""

import io
import os
import shutil
import sys
import textwrap
import traceback

import click

from parallel_core.command_line import cli
from parallel_core.jobs.rank import in_a_job, leave
from parallel_core.system import errors
from parallel_core.system.formatting import visible
from parallel_core.system.signals import INTERRUPTED, end_soon_on_interrupt


def main() -> None:
    """Run the command line with this process's arguments, and exit.

    The status is 0, or 1 for a failed run, 2 for a bad request, and 3 if the machine was disturbed.
    """
    end_soon_on_interrupt()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no “×” shows a question mark instead of failing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        status = cli.main(prog_name="parallel-core", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = 2
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        sys.stdout.flush()
        # The frameworks' queues may need minutes to become empty.
        os._exit(INTERRUPTED)
    except (Exception, SystemExit) as error:
        message, status = message_and_status(error)
        if in_a_job():
            leave(error, message, status)
        print_error(message)
    sys.exit(status)


def message_and_status(error: Exception | SystemExit) -> tuple[str, int]:
    """Return an error's message, in one line, and the exit status.

    Raises the error again if it is a bug, or if nobody reads messages.
    """
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split()), errors.REFUSED
    if isinstance(error, SystemExit) and _raised_in(error) in ("click", "rich"):
        # The reader of the output has left, so an error would reach nobody.
        raise error
    try:
        return errors.message_and_status(error)
    except (Exception, SystemExit):
        if not in_a_job():
            raise
        # If it were raised, this process would wait for the other ranks.
        traceback.print_exception(error)
        return " ".join(f"{type(error).__name__}: {error}".split()), errors.FAILED


def _raised_in(error: BaseException) -> str:
    """Return the name of the package in which an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name: str = trace.tb_frame.f_globals["__name__"] if trace is not None else ""
    return name.partition(".")[0]


def print_error(message: str) -> None:
    """Print an error on standard error in one line, which is wrapped only on a terminal."""
    width = sys.maxsize
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
    line = f"parallel-core: {visible(message)}"
    lines = textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
    click.echo("\n".join(lines), err=True)
