"""The turns of a process that lives beside others, which measure the same on other frameworks: one
of them computes, and the rest sleep.

What the machine does within some seconds, it does to all of them, and it cancels in their ratios.
The process that started them (`parallel_core.comparison.living_processes`) gives a turn with a line
on standard input: further options of the next experiment, which another process chose. A turn is
ended with a byte on a descriptor, between two rounds of timing. A process that nobody gives turns
never waits.
"""

import os
from threading import Semaphore
from time import perf_counter
from typing import final

from backends.host import clock_without_compiling
from parallel_core.system.subprocesses import leave_with_starter

SHORTEST_TURN = 0.5
"""The seconds after which a turn ends between two rounds. Caches are cold when one begins."""
TURN_ENDS, EXPERIMENT_ENDS = b"t", b"e"
"""What a process writes when its turn is over, and when it has printed a result, too."""


@final
class _Turns:
    """The turns of this process; it has the first one when it starts."""

    def __init__(self, ended_on: int) -> None:
        self._ended_on = ended_on
        self._given = Semaphore(0)
        self.options: list[str] = []
        self.began = perf_counter()
        self.waited = 0.0
        leave_with_starter(on_read=self._give)

    def _give(self, line: bytes) -> None:
        # The line is shorter than what a pipe takes as a whole, and the next one follows this turn.
        self.options = line.decode().split()
        self._given.release()

    def end(self, message: bytes) -> None:
        """End this turn, and wait for the next one."""
        ended = perf_counter()
        os.write(self._ended_on, message)
        self._given.acquire()
        self.began = perf_counter()
        self.waited += self.began - ended


_turns: list[_Turns] = []
"""The turns of this process; none if nobody gives any."""


def take_turns(ended_on: int) -> None:
    """Take turns from now on, and end each on a descriptor."""
    _turns.append(_Turns(ended_on))


def are_taken() -> bool:
    """Return whether this process takes turns."""
    return bool(_turns)


def end_turn(shortest: float = 0.0) -> None:
    """End a turn, unless it has not lasted for so many seconds."""
    for turns in _turns:
        if perf_counter() - turns.began >= shortest:
            turns.end(TURN_ENDS)


def end_experiment() -> None:
    """End a turn in which a result was printed."""
    for turns in _turns:
        turns.end(EXPERIMENT_ENDS)


def options_of_turn() -> list[str]:
    """Return the options that were given with this turn, as words of a command line."""
    return [option for turns in _turns for option in turns.options]


def working_clock() -> float:
    """Return the seconds of `perf_counter` in which this process neither compiled nor waited for
    its turn.

    They are for budgets, not for timings.
    """
    return clock_without_compiling() - sum(turns.waited for turns in _turns)
