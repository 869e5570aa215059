"""Processes that are alive together and take turns: one computes, and the others sleep.

All of them start at once and load their frameworks side by side. Then each gets a turn, and ends it
by itself between two rounds of timing (`parallel_core.measurement.turns`). Those that are behind in
the list of experiments come first, so that an experiment is measured everywhere within the same
seconds, and every second time the order is reversed. Only computing counts for a process's
deadline: one that hangs or is stopped in its turn is killed, and the others go on.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from time import monotonic
from typing import final

from parallel_core.measurement.turns import EXPERIMENT_ENDS
from parallel_core.system.errors import REFUSED
from parallel_core.system.subprocesses import Outcome, Running, started

AFTER_ALL = sys.maxsize
"""In place of an experiment's number: the process ends."""


@dataclass(frozen=True)
class Command:
    """A command of a process that takes turns."""

    words: Callable[[int], Sequence[str]]
    """Returns the words of the command, given the descriptor on which it is to end its turns."""
    steps: Sequence[int]
    """The numbers of the experiments that it measures, ascending: the same number is the same
    experiment in all processes.
    """
    deadline: float
    """The seconds that it may compute."""


@final
@dataclass
class Living:
    """A process that takes turns, and what it has done so far."""

    command: Command
    _running: Running | None
    """None if it cannot be started."""
    _gives: int
    """The descriptor on which it is given turns."""
    _ended: asyncio.StreamReader
    """The messages with which it ends them."""
    loading: float = 0.0
    """The seconds of its first turn, in which it starts and loads its framework."""
    seconds: float = 0.0
    """The seconds of all its turns."""
    turns: int = 0
    experiments: int = 0
    """How many results it has printed."""
    outcome: Outcome | None = None
    """The outcome of the command; None while it lives."""

    @property
    def step(self) -> int:
        """The number of the experiment that it measures; when it has measured all, a larger one."""
        steps = [*self.command.steps, AFTER_ALL]
        return steps[min(self.experiments, len(steps) - 1)]

    @property
    def output(self) -> str:
        """What it has printed so far."""
        if self.outcome is not None:
            return self.outcome.output
        return self._running.output if self._running is not None else ""

    def give_turn(self, options: str) -> None:
        """Let it compute; the options are further ones of the experiment that it begins, if any."""
        # It may have been killed while it waited.
        with suppress(BrokenPipeError):
            os.write(self._gives, f"{options}\n".encode())

    async def end_of_turn(self) -> None:
        """Wait until its turn ends; kill it when its deadline has passed."""
        began = monotonic()
        message = await self._message()
        self.seconds += monotonic() - began
        self.turns += 1
        if self.turns == 1:
            self.loading = self.seconds
        if message == EXPERIMENT_ENDS:
            self.experiments += 1

    async def _message(self) -> bytes:
        """Return the message that ends a turn; it is empty if the process has ended with it."""
        assert self._running is not None
        message = b""
        timed_out = False
        ending = asyncio.create_task(self._running.process.wait())
        reading = asyncio.create_task(self._ended.read(1))
        try:
            async with asyncio.timeout(self.command.deadline - self.seconds):
                # A grandchild that survives may hold the pipe open.
                await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    message = reading.result()
                if not message:
                    await ending
        except TimeoutError:
            timed_out = True
        finally:
            ending.cancel()
            reading.cancel()
        if not message:
            self.outcome = await self._running.ended(timed_out)
        return message


async def live(
    commands: Sequence[Command],
    cores: set[int],
    on_result: Callable[[Sequence[Living]], object],
    options_of: Callable[[int], str | None] = lambda _: "",
) -> Sequence[Living]:
    """Run commands on some cores until all of them have ended, and return the processes.

    `on_result` is called whenever one of them has printed a result. `options_of` returns the
    options that each gets for an experiment, by the experiment's number. While it returns None,
    only the first process computes, because its result will tell. Nothing of them is left behind,
    also if this is cancelled.
    """
    async with AsyncExitStack() as stack:
        processes = [await _start(command, cores, stack) for command in commands]
        await asyncio.gather(*(process.end_of_turn() for process in _alive(processes)))
        while alive := _alive(processes):
            step = min(process.step for process in alive)
            due = [process for process in alive if process.step == step]
            options = options_of(step) if step < AFTER_ALL else ""
            process = due[0] if options is None else _next(due)
            process.give_turn(options or "")
            await process.end_of_turn()
            if process.step != step:
                on_result(processes)
        return processes


def _alive(processes: Sequence[Living]) -> list[Living]:
    return [process for process in processes if process.outcome is None]


def _next(due: Sequence[Living]) -> Living:
    """Return the process with the fewest turns; of several the first, every second time the last
    one.
    """
    turns = min(process.turns for process in due)
    due = [process for process in due if process.turns == turns]
    # The first turn is that of loading.
    return due[0] if turns % 2 else due[-1]


async def _start(command: Command, cores: set[int], stack: AsyncExitStack) -> Living:
    """Start a process that takes turns; nothing of it is left when the stack is closed."""
    stdin, gives = os.pipe()
    stack.callback(os.close, gives)
    reading, ends = os.pipe()
    ended = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(ended), os.fdopen(reading, "rb", buffering=0)
    )
    stack.callback(transport.close)
    words = command.words(ends)
    try:
        running = await stack.enter_async_context(started(words, cores, stdin, [ends]))
    except OSError as error:
        refusal = f"{words[0]} cannot be started: {error.strerror}"
        outcome = Outcome(REFUSED, "", refusal, timed_out=False)
        return Living(command, None, gives, ended, outcome=outcome)
    finally:
        os.close(stdin)
        os.close(ends)
    return Living(command, running, gives, ended)
