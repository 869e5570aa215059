"""Run parts in a process of their own, each within its time: CUDA code that hangs or crashes takes one part with it."""

import importlib
import multiprocessing
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic

from backends import BackendError
from benchmarks.gpu.part import PartResult, Place

__all__ = ["Clock", "Parts", "run_parts"]

Parts = Mapping[str, str]
"""The module of each part and the name of its function, `module:function`, by the part's name."""

LIMIT_SECONDS = 60.0
"""For a part, and for loading the framework if the part is the first of its process."""
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
) -> Generator[tuple[str, PartResult], None, None]:
    """Run parts one after the other and yield the result of each; a fresh process follows a part that fails."""
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
                outcome = receive(ours, allowed)
                if isinstance(outcome, PartResult):
                    yield waiting.pop(0), outcome
                    continue
                if outcome == "ended":
                    worker.join()
                    outcome = f"the process ended with status {worker.exitcode}"
                yield waiting.pop(0), PartResult(problems=(outcome,))
                break
        finally:
            worker.kill()
            worker.join()
            ours.close()
    for name in waiting:
        yield name, PartResult(skipped=("no time was left",))


def receive(connection: Connection, seconds: float) -> "PartResult | str":
    """Return the worker's result, or a sentence if it gave none in time, or `ended` if it is gone."""
    try:
        if not connection.poll(seconds):
            return f"stopped: it was not done after {seconds:.0f} s"
        return connection.recv()
    except EOFError:
        return "ended"


def work(functions: Sequence[str], place: Place, connection: Connection) -> None:
    """Run parts and send the result of each. A failure ends the process: CUDA's errors stay."""
    for name in functions:
        try:
            outcome: PartResult | str = imported(name)(place)
        except BackendError as error:
            outcome = PartResult(skipped=(str(error),))
        except Exception as error:
            outcome = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no reason given')}"
        connection.send(outcome)
        if isinstance(outcome, str):
            return


def imported(function: str) -> Callable[[Place], PartResult]:
    """Import `module:function`."""
    module, _, name = function.partition(":")
    measure: Callable[[Place], PartResult] = getattr(importlib.import_module(module), name)
    return measure
