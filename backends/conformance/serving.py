"""The process of a worker: it loads a backend, and does with it what it is asked to.

Requests and answers go through one connection. What a backend prints goes to standard error. When
the process crashes, or is told that it hangs, it writes the stacks of its threads to a file.
"""

import faulthandler
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TextIO, final

import psutil

from backends.conformance.answers import encoded
from backends.errors import BackendError, message_of
from backends.protocol import Backend

Loader = Callable[[int], Backend]
"""Loads a backend with so many devices; it travels to another process, so it must be picklable."""
Answer = Callable[[Any], None]
"""Sends a value to the process that asked for it."""
Work = Callable[..., object]
"""What is done in each call: a function of `Loaded`, an `Answer`, and the arguments of the call;
picklable, too.
"""
HANGS = signal.SIGUSR1
"""The signal that tells the process that it hangs."""
Kind = Literal["begins", "value", "ends"]
"""What a message is: that the process is there; an answer; that a call is over, with the reason if
it failed.
"""

THREAD_ENDED = "a worker thread ended with "
"""How the stacks of a process begin that ended itself because a thread of its backend did."""


@dataclass(frozen=True)
class Task:
    """The task of a worker's process: what it loads, what it computes, and its limits."""

    load: Loader
    work: Work
    devices: int = 1
    """The number of devices with which the backend is loaded first."""
    starting_seconds: float = 60
    """How long loading may take: the first import of a framework may be slow."""
    memory: int | None = None
    """The bytes by which the process may grow when it loads and works; None: any."""


@final
class Loaded:
    """The backend of this process, which is loaded for one number of devices at a time."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._devices = 0
        self._backend: Backend | None = None

    def on(self, devices: int, anew: bool = False) -> Backend:
        """Return the backend with this number of devices.

        It is loaded if it has another number of devices, or if it must be a new one.
        """
        if self._backend is None or self._devices != devices or anew:
            # Let go of the old one first.
            self._backend = None
            self._backend = self._load(devices)
            self._devices = devices
        return self._backend


def serve(connection: Connection, task: Task, stacks: Path) -> None:
    """Load the backend, and then answer one call after the other, until the process is killed."""
    # With all that the backend starts, it is a group of processes, which is killed as a whole.
    os.setsid()
    # An interrupt is for the process that shows it; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    if task.memory is not None:
        _limit_growth(task.memory)
    with stacks.open("w") as stacks_file:
        faulthandler.enable(stacks_file)
        # After its stacks it ends, as every process does that gets this signal.
        faulthandler.register(HANGS, stacks_file, chain=True)
        threading.excepthook = partial(_end_with_thread, stacks_file)
        server = _Server(connection)
        server.send("begins", None)
        loaded = Loaded(task.load)
        if not server.do(partial(loaded.on, task.devices)):
            return
        while True:
            arguments = connection.recv()
            server.do(partial(task.work, loaded, server.answer, *arguments))


@final
class _Server:
    """The side of the calls that computes: it does the work, and sends what comes of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The threads of a program answer at the same time.
        self._sending = threading.Lock()

    def answer(self, value: Any) -> None:
        """Send an answer to the call that is being done."""
        self.send("value", encoded(value))

    def send(self, kind: Kind, content: Any) -> None:
        """Send a message as JSON."""
        message = json.dumps([kind, content]).encode()
        with self._sending:
            self._connection.send_bytes(message)

    def do(self, work: Callable[[], object]) -> bool:
        """Do `work`, send the end of the call, and return whether it raised nothing."""
        reason = None
        try:
            work()
        except BackendError as error:
            reason = message_of(error)
        except BaseException as error:
            reason = f"{type(error).__name__}: {message_of(error)}"
        self.send("ends", reason)
        return reason is None


def _limit_growth(size: int) -> None:
    """Limit the additional memory that this process may map, and the size of a file, to `size`.

    Both in bytes, shared memory included. Each process that this one starts has the same limits.
    """
    limits = {
        resource.RLIMIT_AS: psutil.Process().memory_info().vms + size,
        # Also of a file in memory, in /dev/shm.
        resource.RLIMIT_FSIZE: size,
    }
    for kind, limit in limits.items():
        _, hard_limit = resource.getrlimit(kind)
        if hard_limit != resource.RLIM_INFINITY:
            limit = min(limit, hard_limit)
        resource.setrlimit(kind, (limit, limit))


def _end_with_thread(stacks: TextIO, ended: threading.ExceptHookArgs) -> None:
    """End this process because one of its threads ended with an error, and write why.

    What the thread should have computed never comes, so whoever waits for it would hang.
    """
    frames = traceback.extract_tb(ended.exc_traceback)
    frames_of_backend = [frame for frame in frames if frame.filename != threading.__file__]
    place = (frames_of_backend or frames)[0]
    cause = ended.exc_value
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    stacks.seek(0)
    stacks.truncate()
    stacks.write(
        f"{THREAD_ENDED}{type(cause).__name__} (in `{place.name}`, {Path(place.filename).name}, "
        f"line {place.lineno}), so nothing behind it ran\n"
    )
    traceback.print_exception(ended.exc_value, file=stacks, chain=False)
    stacks.flush()
    os._exit(1)


def _end_with_parent() -> None:
    """Wait until the parent process has ended, then kill this group of processes."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
