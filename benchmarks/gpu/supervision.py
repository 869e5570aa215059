"""Run parts in a process of their own, each within its time: CUDA code that hangs or crashes takes one part with it."""

import importlib
import multiprocessing
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic

from backends import BackendError
from benchmarks.gpu.part import Found, Place

__all__ = ["Clock", "Parts", "run_parts"]

Parts = Mapping[str, str]
"""The module of each part and the name of its function, `module:function`, by the part's name."""

LIMIT_SECONDS = 60.0
"""For a part, with loading the framework where it is the first of its process."""
MIN_SECONDS = 5.0
"""With less left than this, nothing is begun."""


@dataclass(frozen=True)
class Clock:
    """When everything has to be over, on `time.monotonic`."""

    deadline: float

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.deadline - monotonic()


def run_parts(
    parts: Parts, place: Place, clock: Clock, limit: float = LIMIT_SECONDS
) -> Generator[tuple[str, Found], None, None]:
    """Run parts one after the other and yield what each found; a part that fails is followed by a fresh process."""
    context = multiprocessing.get_context("spawn")
    waiting = list(parts)
    while waiting and clock.left() >= MIN_SECONDS:
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=work, args=([parts[name] for name in waiting], place, theirs), daemon=True)
        worker.start()
        theirs.close()
        try:
            while waiting and clock.left() >= MIN_SECONDS:
                allowed = min(limit, clock.left())
                found = receive(ours, allowed)
                if isinstance(found, Found):
                    yield waiting.pop(0), found
                    continue
                if found == "ended":
                    worker.join()
                    found = f"the process ended with status {worker.exitcode}"
                yield waiting.pop(0), Found(problems=(found,))
                break
        finally:
            worker.kill()
            worker.join()
            ours.close()
    for name in waiting:
        yield name, Found(skipped=("no time was left",))


def receive(connection: Connection, seconds: float) -> "Found | str":
    """Return what the worker found, or a sentence, or `ended` where it is no more."""
    try:
        if not connection.poll(seconds):
            return f"stopped: it was not done after {seconds:.0f} s"
        return connection.recv()
    except EOFError:
        return "ended"


def work(functions: Sequence[str], place: Place, connection: Connection) -> None:
    """Run parts and send what each found. After a failure the process is of no further use: CUDA's errors stay."""
    for name in functions:
        try:
            found: Found | str = imported(name)(place)
        except BackendError as error:
            found = Found(skipped=(str(error),))
        except Exception as error:
            found = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no reason given')}"
        connection.send(found)
        if isinstance(found, str):
            return


def imported(function: str) -> Callable[[Place], Found]:
    """Import `module:function`."""
    module, _, name = function.partition(":")
    found: Callable[[Place], Found] = getattr(importlib.import_module(module), name)
    return found
