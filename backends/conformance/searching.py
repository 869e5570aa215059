"""Draws programs and runs them, until something is found or the time is over."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from time import monotonic
from typing import final

from backends.conformance.drawing import draw_program
from backends.conformance.programs import Program
from backends.conformance.running import Finding
from backends.conformance.shrinking import shrink
from backends.conformance.worker import Loader, Worker

RUNS_IN_SHRINKING = 5
"""What depends on the timing shows itself in one of so many runs, or else the program stays as long as it is."""


@final
@dataclass(frozen=True)
class Found:
    """What a backend did wrong in a program, which is as short as could be made."""

    number: int
    program: Program
    finding: Finding

    def text(self, loading: str) -> str:
        """Write the program, with what is wrong behind its statement, and each thread's stack if it hangs.

        In `loading`, the call that loads the backend, `{}` stands for the number of devices.
        """
        place = self.finding.place
        remarks = {} if place is None else {place: self.finding.what}
        return "\n".join(
            filter(None, (self.program.text(loading.format(self.program.devices), remarks), self.finding.stacks))
        )


@final
@dataclass(frozen=True)
class Limits:
    """Which programs are run: those of a seed from the first on, until one of the limits is reached."""

    seed: int = 0
    first: int = 0
    seconds: float | None = None
    programs: int | None = None
    devices: int | None = None
    """The number of devices of all programs; None: 1 to 9."""
    deadline: float = 20
    """Seconds after which a program hangs."""


def program_of(seed: int, number: int, devices: int | None = None) -> Program:
    """Draw one of the programs of a seed; it does not depend on those before it."""
    return draw_program(Random(f"{seed}/{number}"), devices)


def search(
    load: Loader, limits: Limits, on_program: Callable[[int, float], object] = lambda *_: None
) -> Iterator[Found]:
    """Iterate over what is found, each kind once; `on_program` is told the number of programs and the seconds."""
    start = monotonic()
    kinds: set[str] = set()
    with Worker(load, limits.deadline) as worker:
        for number in count(limits.first):
            done, elapsed = number - limits.first, monotonic() - start
            on_program(done, elapsed)
            if done == limits.programs or (limits.seconds is not None and elapsed >= limits.seconds):
                return
            program = program_of(limits.seed, number, limits.devices)
            finding = worker.run(program)
            if finding is None or _without_numbers(finding) in kinds:
                continue
            kinds.add(_without_numbers(finding))
            yield Found(number, *_shortest(worker, program, finding))


def _shortest(worker: Worker, program: Program, finding: Finding) -> tuple[Program, Finding]:
    # A hang costs its deadline each time.
    deadline = min(worker.deadline, 4)
    always = all(worker.run(program, 1, deadline) for _ in range(3))
    return shrink(program, finding, lambda one: worker.run(one, 1 if always else RUNS_IN_SHRINKING, deadline))


def _without_numbers(finding: Finding) -> str:
    return re.sub(r"numbers.*|\(.*|[^a-zA-Z ]", "", finding.what)
