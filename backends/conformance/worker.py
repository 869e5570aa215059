"""A process that loads a backend and works with it, as its parent sees it: a hang and a crash are
errors.
"""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, final

from backends.conformance.answers import decoded
from backends.conformance.serving import HANGS, THREAD_ENDED, Kind, Task, serve
from backends.errors import BackendError

BEGINNING_SECONDS = 120.0
"""In which a process imports these packages, before it loads the backend."""
PATIENCE = 2.0
"""Seconds in which a process that hangs may write its stacks and end, before it is killed."""


class WorkError(Exception):
    """A call that did not come to its end, for a reason.

    `stacks` are those of the process's threads, if known.
    """

    def __init__(self, reason: str, stacks: str = "") -> None:
        super().__init__(reason)
        self.stacks = stacks


class RaisedError(WorkError):
    """A call whose work raised something; the process lives on."""


class HangError(WorkError):
    """A call that took too long."""


class CrashError(WorkError):
    """A call during which the process ended; `how` is its status or signal."""

    def __init__(self, how: str, stacks: str) -> None:
        verb = "ends" if how.startswith("exit") else "crashes"
        super().__init__(f"{verb} the process ({how})", stacks)
        self.how = how


@final
class Worker:
    """A process that does a task: the first call starts it, and so does the first one after a hang
    or a crash.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._folder = TemporaryDirectory(prefix="conformance-")
        self._stacks = Path(self._folder.name, "stacks")
        self._process: Any = None
        self._connection: Connection

    def close(self) -> None:
        """End the process, and all that it started."""
        self._kill()
        self._folder.cleanup()

    def call(self, *arguments: Any, seconds: float) -> Iterator[Any]:
        """Iterate over the values that the task's work answers for some arguments, as they come.

        Raises BackendError if the backend cannot be loaded; HangError if the work takes more than
        these seconds; CrashError if the process ends; RaisedError if the work raises.
        """
        if self._process is None:
            self._start()
        # A process that has ended is told of when its answer is read.
        with suppress(OSError):
            self._connection.send(arguments)
        yield from self._answers(seconds)

    def _start(self) -> None:
        """Start the process, and wait until it has loaded the backend."""
        # Not forked: frameworks do not survive a fork, and each worker imports its own.
        context = multiprocessing.get_context("spawn")
        self._connection, end_of_process = context.Pipe()
        self._stacks.write_text("")
        self._process = context.Process(
            target=serve, args=(end_of_process, self._task, self._stacks), daemon=True
        )
        self._process.start()
        end_of_process.close()
        try:
            self._wait_until_loaded(self._task.starting_seconds)
        except BaseException:
            self._kill()
            raise

    def _wait_until_loaded(self, seconds: float) -> None:
        """Raise BackendError if the backend is not loaded within some seconds.

        If loading hangs, the stacks are printed to standard error.
        """
        try:
            self._message(BEGINNING_SECONDS)
        except WorkError as error:
            raise BackendError(
                f"no process could be started to load the backend (it {error}): "
                f"a script needs `if __name__ == '__main__'` around what starts it"
            ) from error
        try:
            for _ in self._answers(seconds):
                pass
        except HangError as error:
            print(error.stacks, file=sys.stderr)
            raise BackendError(
                f"loading the backend did not return within {seconds:g} s: start a thread where "
                "its stacks end, and return"
            ) from error
        except CrashError as error:
            raise BackendError(
                f"the process ended before it had loaded the backend ({error.how})"
            ) from error
        except WorkError as error:
            raise BackendError(str(error)) from error

    def _answers(self, seconds: float) -> Iterator[Any]:
        """Iterate over the answers to a call until it ends; raises WorkError as `call` does."""
        end = monotonic() + seconds
        while True:
            kind, content = self._message(end - monotonic())
            if kind == "value":
                yield decoded(content)
            elif content is None:
                return
            else:
                lines = content.strip().splitlines() or ["no reason given"]
                raise RaisedError(lines[0])

    def _message(self, seconds: float) -> tuple[Kind, Any]:
        """Return the kind and the content of the next message that the process sends.

        Raises HangError if none comes within these seconds, and CrashError if the process ends.
        """
        if not self._connection.poll(max(0.0, seconds)):
            os.kill(self._process.pid, HANGS)
            self._process.join(PATIENCE)
            raise HangError("hangs", self._killed())
        try:
            kind, content = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            self._process.join(PATIENCE)
            how = self._how_it_ended()
            stacks = self._killed()
            if stacks.startswith(THREAD_ENDED):
                reason, _, its_stack = stacks.partition("\n")
                raise WorkError(reason, its_stack) from None
            raise CrashError(how, stacks) from None
        return kind, content

    def _how_it_ended(self) -> str:
        """Return the exit status of the process, or the signal that ended it, in words."""
        code: int = self._process.exitcode or 0
        if code >= 0:
            return f"exit status {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def _killed(self) -> str:
        """End the process, and return the stacks that it wrote."""
        self._kill()
        return self._stacks.read_text(errors="replace")

    def _kill(self) -> None:
        """Kill the process with all that it started, and close the connection to it."""
        if self._process is None:
            return
        # No group yet, if it was just started.
        self._process.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._process = None
        self._connection.close()
