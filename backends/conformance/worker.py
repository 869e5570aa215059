"""Runs programs in a separate process, which is killed when it hangs: a backend that hangs cannot be unwound."""

import faulthandler
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

from backends.conformance.programs import Program
from backends.conformance.running import Finding, run
from backends.errors import BackendError
from backends.protocol import Backend

Loader = Callable[[int], Backend]
"""Loads a backend with so many devices; it travels to another process, so it must be picklable."""
MAX_STACK_LINES = 60


@final
class Worker:
    """A process that runs programs one after the other, and is started again after a hang or a crash."""

    def __init__(self, load: Loader, deadline: float) -> None:
        self._load, self.deadline = load, deadline
        self._folder = TemporaryDirectory(prefix="conformance-")
        self._stacks = Path(self._folder.name, "stacks")
        self._process: Any = None
        self._connection: Connection

    def close(self) -> None:
        self._kill()
        self._folder.cleanup()

    def run(self, program: Program, times: int = 1, deadline: float | None = None) -> Finding | None:
        """Run a program so many times, or until something is found; raises BackendError if the backend cannot load."""
        deadline = deadline or self.deadline
        if self._process is None:
            self._start()
        try:
            self._connection.send((program, times, deadline))
            # The process ends itself; but if one thread keeps the interpreter's lock, it cannot.
            if not self._connection.poll(deadline * times + 2):
                return self._ended("hangs")
            answer: Finding | None = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join(5)
            timed_out = self._stacks.read_text(errors="replace").startswith("Timeout")
            return self._ended("hangs" if timed_out else f"crashes the process ({self._how_it_ended()})")
        return answer

    def _start(self) -> None:
        # Not forked: frameworks do not survive a fork, and each worker imports its own.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._load, self._stacks), daemon=True)
        self._process.start()
        theirs.close()
        # The first import of a framework may take long; it is no part of a program's deadline.
        try:
            error = self._connection.recv()
        except EOFError:
            self._process.join(5)
            error = BackendError(
                f"the process that runs programs ended before it had loaded the backend ({self._how_it_ended()}): "
                f"a script needs `if __name__ == '__main__'` around the search"
            )
        if error is not None:
            self._kill()
            raise error

    def _how_it_ended(self) -> str:
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def _ended(self, what: str) -> Finding:
        stacks = self._stacks.read_text(errors="replace") if self._stacks.exists() else ""
        self._kill()
        return Finding(what, _place_of(stacks), "\n".join(stacks.splitlines()[:MAX_STACK_LINES]))

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
            self._connection.close()


def _place_of(stacks: str) -> int | None:
    """Return the number of the statement in which the main thread was, which names its code."""
    places = [line for line in stacks.splitlines() if '"<statement ' in line]
    return int(places[-1].split('"<statement ')[1].split(">")[0]) if places else None


def _serve(connection: Connection, load: Loader, stacks: Path) -> None:
    # An interrupt is for the process that shows it; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    backends: dict[int, Backend] = {}
    with stacks.open("w") as file:
        faulthandler.enable(file)
        try:
            _load_for(backends, load, 1)
        except Exception as error:
            raw = "" if isinstance(error, BackendError) else f"{type(error).__name__}: "
            connection.send(BackendError(f"{raw}{error}"))
            return
        connection.send(None)
        while True:
            program, times, deadline = connection.recv()
            file.seek(0)
            file.truncate()
            finding = None
            while times and finding is None:
                faulthandler.dump_traceback_later(deadline, exit=True, file=file)
                finding = _run_and_reload(program, backends, load)
                faulthandler.cancel_dump_traceback_later()
                times -= 1
            connection.send(finding)


def _run_and_reload(program: Program, backends: dict[int, Backend], load: Loader) -> Finding | None:
    """Run a program; a backend that may have failed is replaced, and that must be possible."""
    try:
        finding = run(program, _load_for(backends, load, program.devices))
        if finding is not None or any(statement.fails for statement in program.statements):
            backends.clear()
            _load_for(backends, load, program.devices)
    except Exception as error:
        return Finding(f"raises {type(error).__name__} when it is loaded again: {error}")
    return finding


def _load_for(backends: dict[int, Backend], load: Loader, devices: int) -> Backend:
    if devices not in backends:
        backends.clear()
        backends[devices] = load(devices)
    return backends[devices]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
