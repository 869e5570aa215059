"""Processes that are alive together and take turns: one computes, and the others sleep.

All of them start at once and load their frameworks side by side. Then each gets a turn, and ends it
by itself between two rounds of timing (`parallel_core.measurement.starter`). Those that are behind
in the list of experiments come first, so that an experiment is measured everywhere within the same
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

from parallel_core.measurement.starter import EXPERIMENT_ENDS, GO_ON, NOTHING_MORE
from parallel_core.system.errors import REFUSED
from parallel_core.system.subprocesses import Outcome, Running, started

AFTER_ALL = sys.maxsize
"""In place of an experiment's number: the process ends."""


@dataclass(frozen=True)
class Command:
    """A command of a process that takes turns."""

    words: Callable[[int], Sequence[str]]
    """Returns the words of the command, given the descriptor on which it is to end its turns."""
    first_line: str
    """The line on its standard input when it starts: an experiment whose framework it loads."""
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
    is_within: bool = False
    """Whether it was asked for an experiment that it has not ended."""
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

    def give_turn(self, line: str) -> None:
        """Let it compute, by a line that lets it go on, or asks for an experiment or its end."""
        self.is_within = line != NOTHING_MORE
        # It may have been killed while it waited.
        with suppress(BrokenPipeError):
            os.write(self._gives, f"{line}\n".encode())

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
            self.is_within = False

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
    ask: Callable[[int, int], str],
    on_result: Callable[[Sequence[Living]], object],
    can_all_begin: Callable[[int], bool] = lambda _: True,
) -> Sequence[Living]:
    """Run commands on some cores until all of them have ended, and return the processes.

    `ask` returns the line that asks a process for an experiment, by their numbers, and `on_result`
    is called whenever one of them has printed a result. While they cannot all begin an experiment,
    only the first process computes, because its result will say what the others are asked for.
    Nothing of them is left behind, also if this is cancelled.
    """
    async with AsyncExitStack() as stack:
        processes = [await _start(command, cores, stack) for command in commands]
        await asyncio.gather(*(process.end_of_turn() for process in _alive(processes)))
        while alive := _alive(processes):
            step = min(process.step for process in alive)
            due = [process for process in alive if process.step == step]
            process = _next(due) if step == AFTER_ALL or can_all_begin(step) else due[0]
            if process.is_within:
                line = GO_ON
            elif step == AFTER_ALL:
                line = NOTHING_MORE
            else:
                line = ask(processes.index(process), step)
            process.give_turn(line)
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
    os.write(gives, f"{command.first_line}\n".encode())
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
