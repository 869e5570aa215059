"""A process that loads a backend and works with it, as its parent sees it: a hang and a crash are
errors.

The parent believes only answers to what it asked, and reads them for no longer than it allowed.
"""

import json
import multiprocessing
import os
import re
import signal
import sys
import sysconfig
import threading
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, final, get_args

from backends.conformance.answers import decoded
from backends.conformance.serving import THREAD_ENDED, Channels, Kind, Task, serve
from backends.errors import BackendError

BEGINNING_SECONDS = 120.0
"""In which a process imports these packages, before it loads the backend."""
PATIENCE = 2.0
"""Seconds after its deadline in which a process may write its stacks and end, before it is
killed.
"""
MOST_PASSED_ON = 2**13
"""Bytes of what a process prints that are passed on to standard error."""
LONGEST_LINE = 2**28
"""Bytes of one answer."""
LONGEST_REASON = 500
"""Characters of what is passed on of an error's message."""
FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
"""A line of a stack that `faulthandler` writes."""
PACKAGES = Path(__file__).parents[2]
BLAMELESS = (
    "<",
    f"{PACKAGES / 'backends'}{os.sep}",
    f"{PACKAGES / 'parallel_core'}{os.sep}",
    f"{sysconfig.get_path('stdlib')}{os.sep}",
)
"""How the files of functions begin that are not to blame if loading hangs."""


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
        self._requests: Connection
        self._lines: _Lines
        self._passing_on: threading.Thread

    def close(self) -> None:
        """End the process, and all that it started."""
        self._kill()
        self._folder.cleanup()

    def call(self, *arguments: Any, seconds: float) -> Iterator[Any]:
        """Iterate over the values that the task's work answers for some arguments, as they come.

        Raises BackendError if the backend cannot be loaded; HangError if the work takes more than
        these seconds; CrashError if the process ends; RaisedError if the work raises; WorkError if
        the process sends anything else.
        """
        if self._process is None:
            self._start()
        # What was sent before the call is no answer to it.
        nonce = token_hex()
        # A process that has ended is told of when its answer is read.
        with suppress(OSError):
            self._requests.send((nonce, seconds, arguments))
        yield from self._answers(nonce, seconds)

    def _start(self) -> None:
        """Start the process, and wait until it has loaded the backend."""
        # Not forked: frameworks do not survive a fork, and each worker imports its own.
        context = multiprocessing.get_context("spawn")
        requests, self._requests = context.Pipe(duplex=False)
        received, answers = context.Pipe(duplex=False)
        printed, output = context.Pipe(duplex=False)
        self._stacks.write_text("")
        channels = Channels(requests, answers, output)
        self._process = context.Process(
            target=serve, args=(channels, self._task, self._stacks), daemon=True
        )
        self._process.start()
        for connection in (requests, answers, output):
            connection.close()
        self._lines = _Lines(received)
        self._passing_on = threading.Thread(target=_pass_on, args=(printed,), daemon=True)
        self._passing_on.start()
        try:
            self._wait_until_loaded(self._task.starting_seconds)
        except BaseException:
            self._kill()
            raise

    def _wait_until_loaded(self, seconds: float) -> None:
        """Raise BackendError if the backend is not loaded within some seconds."""
        try:
            self._message("", BEGINNING_SECONDS)
        except WorkError as error:
            raise BackendError(
                f"no process could be started to load the backend (it {error}): "
                f"a script needs `if __name__ == '__main__'` around what starts it"
            ) from error
        try:
            for _ in self._answers("", seconds):
                pass
        except HangError as error:
            raise BackendError(
                f"{_culprit(error.stacks)} did not return within {seconds:g} s: start a thread "
                "there and return"
            ) from error
        except CrashError as error:
            raise BackendError(
                f"the process ended before it had loaded the backend ({error.how})"
            ) from error
        except WorkError as error:
            raise BackendError(str(error)) from error

    def _answers(self, nonce: str, seconds: float) -> Iterator[Any]:
        """Iterate over the answers to a call until it ends; raises WorkError as `call` does."""
        end = monotonic() + seconds
        while True:
            kind, content = self._message(nonce, end - monotonic())
            if kind == "value":
                yield content
            elif content is None:
                return
            else:
                raise RaisedError(_first_line(content))

    def _message(self, nonce: str, seconds: float) -> tuple[Kind, Any]:
        """Return the kind and the value of the next message that the process sends.

        If the process does not answer the call with this nonce within these seconds, end it and
        raise WorkError, as `call` says.
        """
        try:
            line = self._lines.next(seconds + PATIENCE)
            answered_nonce, kind, content = json.loads(line)
            value = decoded(content)
        except TimeoutError:
            raise HangError("hangs", self._killed()) from None
        except EOFError:
            raise self._error_of_end() from None
        except (ValueError, TypeError, RecursionError):
            raise WorkError("answers what cannot be read", self._killed()) from None
        if answered_nonce != nonce or kind not in get_args(Kind):
            raise WorkError("answers what it was not asked", self._killed())
        return kind, value

    def _error_of_end(self) -> WorkError:
        """Return the error of a call during which the process has ended.

        The process ends itself if the call takes too long: then it is a HangError. It also does if
        a thread ends with an error: then the error says which one.
        """
        self._process.join(PATIENCE)
        how = self._how_it_ended()
        stacks = self._killed()
        if stacks.startswith("Timeout"):
            return HangError("hangs", stacks)
        if stacks.startswith(THREAD_ENDED):
            reason, _, its_stack = stacks.partition("\n")
            return WorkError(reason, its_stack)
        return CrashError(how, stacks)

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
        """Kill the process with all that it started, and close the pipes to it."""
        if self._process is None:
            return
        # No group yet, if it was just started.
        self._process.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._process = None
        self._requests.close()
        self._lines.close()
        # What it printed comes before what is said about it, unless a process that it started holds
        # the pipe.
        self._passing_on.join(1)


@final
class _Lines:
    """Lines of a pipe whose other end may write anything, at any time."""

    def __init__(self, received: Connection) -> None:
        self._received = received
        self._rest = bytearray()

    def close(self) -> None:
        self._received.close()

    def next(self, seconds: float) -> bytes:
        """Return the next line.

        Raises TimeoutError, EOFError, and ValueError for a line that is too long.
        """
        end = monotonic() + seconds
        searched = 0
        while (length := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            if searched > LONGEST_LINE:
                raise ValueError("too long a line")
            if not wait([self._received], max(0.0, end - monotonic())):
                raise TimeoutError
            chunk = os.read(self._received.fileno(), 2**20)
            if not chunk:
                raise EOFError
            self._rest += chunk
        line = bytes(self._rest[:length])
        del self._rest[: length + 1]
        return line


def _pass_on(printed: Connection) -> None:
    """Pass the beginning of a process's output on to standard error, and read all of it."""
    decoder = getincrementaldecoder("utf-8")("replace")
    remaining = MOST_PASSED_ON
    with printed:
        while chunk := os.read(printed.fileno(), 2**16):
            if remaining <= 0:
                continue
            text = decoder.decode(chunk[:remaining])
            remaining -= len(chunk)
            if remaining <= 0:
                text += "\n(it printed more)\n"
            with suppress(OSError, ValueError):
                sys.stderr.write(text)
                sys.stderr.flush()


def _culprit(stacks: str) -> str:
    """Name the outermost function of the main thread that is to blame for a hang.

    Functions of these packages and of Python's library are not to blame.
    """
    _, _, main_thread = stacks.rpartition("Thread 0x")
    for line in reversed(main_thread.splitlines()):
        frame = FRAME.match(line)
        if frame is not None and not frame["file"].startswith(BLAMELESS):
            file_name = Path(frame["file"]).name
            return f"`{frame['function']}` ({file_name}, line {frame['line']})"
    return "loading the backend"


def _first_line(message: Any) -> str:
    """Return the first line of an error's message, cut if it is long."""
    lines = str(message).strip().splitlines() or ["no reason given"]
    return lines[0][:LONGEST_REASON]
