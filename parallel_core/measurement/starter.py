"""The process that started this one, which asks it for measurements, and may give it turns.

Processes that measure the same on other frameworks live side by side: one of them computes, and the
rest sleep. What the machine does within some seconds, it does to all of them, and it cancels in
their ratios.
Whoever started them (`parallel_core.compare.living_processes`) gives a turn with a line on standard
input, which is empty, or asks for the next experiment. A turn is ended with a byte on a descriptor,
between two rounds of timing.
"""

import os
from queue import SimpleQueue
from time import perf_counter
from typing import final

from backends.host import clock_without_compiling
from parallel_core.system.subprocesses import leave_with_starter

SHORTEST_TURN = 0.5
"""The seconds after which a turn ends between two rounds. Caches are cold when one begins."""
TURN_ENDS, EXPERIMENT_ENDS = b"t", b"e"
"""What a process writes when its turn is over, and when it has printed a result, too."""
GO_ON, NOTHING_MORE = "", "end"
"""The line that gives a turn within an experiment, and the one that asks a process to end."""


class Turns:
    """The turns of a process that nobody gives any: it never waits."""

    are_given = False
    waited = 0.0
    """The seconds for which this process has waited for its turns."""

    def end_turn(self, shortest: float = 0.0) -> None:
        """End a turn, unless it has not lasted for so many seconds, and wait for the next one."""

    def clock(self) -> float:
        """Return the seconds of `perf_counter` in which this process neither compiled nor waited.

        They are for budgets, not for timings.
        """
        return clock_without_compiling() - self.waited


ALONE = Turns()


@final
class Starter(Turns):
    """The process that started this one: it asks by lines on standard input, and may give turns.

    This process ends with it. It has the first turn when it starts.
    """

    def __init__(self, ended_on: int | None = None) -> None:
        """Take turns, and end each on a descriptor, if there is one."""
        self.are_given = ended_on is not None
        self._ended_on = ended_on
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._asked: list[str] = []
        self._incomplete = b""
        self._began = perf_counter()
        leave_with_starter(on_read=self._keep)

    def _keep(self, read: bytes) -> None:
        """Keep the lines that have ended; a long one comes in several parts."""
        *lines, self._incomplete = (self._incomplete + read).split(b"\n")
        for line in lines:
            self._lines.put(line.decode())

    def next_asked(self) -> str:
        """Wait for the next line that asks for something, and return it."""
        line = self._asked.pop() if self._asked else GO_ON
        while line == GO_ON:
            line = self._lines.get()
        self._began = perf_counter()
        return line

    def end_turn(self, shortest: float = 0.0) -> None:
        ended = perf_counter()
        if self._ended_on is None or ended - self._began < shortest:
            return
        os.write(self._ended_on, TURN_ENDS)
        line = self._lines.get()
        if line != GO_ON:
            # Whoever wrote to the descriptor in this process's name is asked too early.
            self._asked.append(line)
        self._began = perf_counter()
        self.waited += self._began - ended

    def end_experiment(self) -> None:
        """End a turn in which a result was printed."""
        if self._ended_on is not None:
            os.write(self._ended_on, EXPERIMENT_ENDS)
