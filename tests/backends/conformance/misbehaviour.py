"""What a backend may do to the process that it is loaded in, while it is loaded and while it
works.
"""

import os
import re
import signal
import sys
import threading
from mmap import mmap
from multiprocessing.shared_memory import SharedMemory

from backends import Backend
from backends.conformance.serving import Answer, Loaded

GIBIBYTE = 2**30


def never_return(devices: int) -> Backend:  # noqa: ARG001
    """Work for ever, as an author does who forgets to start a thread for it."""
    while True:
        threading.Event().wait(1)


def never_let_go(devices: int) -> Backend:  # noqa: ARG001
    """Hold the interpreter's lock for ever."""
    re.match("(a*)*b", "a" * 60)
    raise AssertionError


def exit_while_loading(devices: int) -> Backend:  # noqa: ARG001
    sys.exit("enough")


def do(loaded: Loaded, answer: Answer, name: str) -> None:
    """Call the function of this module with a name, and answer with the name of the backend."""
    misbehave = globals()[name]
    misbehave()
    answer(loaded.on(1).name)


def nothing() -> None:
    """Behave well."""


def hang() -> None:
    threading.Event().wait()


def exit_from_python() -> None:
    sys.exit(0)


def exit_at_once() -> None:
    os._exit(0)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def be_killed_by_a_signal_without_a_name() -> None:
    os.kill(os.getpid(), signal.SIGRTMIN + 1)


def print_a_line() -> None:
    print("a line")


def close_its_output() -> None:
    sys.stdout.close()
    sys.stderr = None  # type: ignore[assignment]


def leave_a_thread() -> None:
    threading.Thread(target=hang).start()


def lose_a_thread() -> None:
    """Wait for a thread that has ended, as the queue of a dead worker is waited for."""
    threading.Thread(target=int, args=("none",)).start()
    hang()


def take_memory() -> None:
    bytearray(2 * GIBIBYTE)


def share_memory() -> None:
    mmap(-1, 2 * GIBIBYTE)


def share_a_file_in_memory() -> None:
    SharedMemory(create=True, size=2 * GIBIBYTE)
