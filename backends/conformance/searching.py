"""Draws programs and runs them, until something is found or the time is over.

What is found is made shorter. They run in a separate process, which is killed when it hangs: a
backend that hangs cannot be unwound.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from time import monotonic
from typing import Any, final

from backends.arrays import tree_leaves
from backends.conformance.drawing import draw_program
from backends.conformance.judging import Finding, expected_values, judge
from backends.conformance.model import tuple_text
from backends.conformance.programs import Program
from backends.conformance.running import Event, record
from backends.conformance.serving import Loader, Task
from backends.conformance.worker import RaisedError, Worker, WorkError

RUNS_IN_SHRINKING = 5
"""Runs of a shorter program whose fault depends on timing: one of them must show the fault."""
MAX_SECONDS = 45
MAX_ELEMENTS = 12
"""The most numbers of an array that are written out."""
MAX_LEAVES = 6
MAX_STACK_LINES = 60


@final
@dataclass(frozen=True)
class Found:
    """A failing program, which is as short as could be made, and what a backend did wrong in it."""

    number: int
    program: Program
    finding: Finding

    def text(self, loading: str) -> str:
        """Write the program, with the finding behind its statement, and the stacks if it hangs.

        In `loading`, the call that loads the backend, `{}` stands for the number of devices.
        """
        statements = list(self.program.statements)
        position = self.finding.position
        if position is not None:
            source = f"{statements[position].source}  # {self.finding.what}"
            statements[position] = replace(statements[position], source=source)
        commented_program = replace(self.program, statements=tuple(statements))
        text = commented_program.text(loading.format(self.program.devices))
        if self.finding.stacks:
            text = f"{text}\n{self.finding.stacks}"
        return text


@final
@dataclass(frozen=True)
class Limits:
    """The limits of a search: it runs a seed's programs until one of them is reached."""

    seed: int = 0
    first: int = 0
    seconds: float | None = None
    programs: int | None = None
    devices: int | None = None
    """The number of devices of all programs; None: 1 to 9."""
    deadline: float = 20
    """Seconds after which a program hangs."""
    starting_seconds: float = 60
    """Seconds after which loading the backend for the first time hangs."""
    memory: int | None = None
    """Bytes by which the process of the backend may grow; None: any."""


def search(
    load: Loader, limits: Limits, on_program: Callable[[int, float], object] = lambda *_: None
) -> Iterator[Found]:
    """Iterate over the failing programs that are found, one for each kind of finding.

    `on_program` is called before each program with the number of programs before it, and the
    seconds that have passed.
    """
    start = monotonic()
    kinds: set[str] = set()
    with closing(Runner(load, limits)) as runner:
        for number in count(limits.first):
            programs_done = number - limits.first
            elapsed = monotonic() - start
            on_program(programs_done, elapsed)
            if programs_done == limits.programs:
                return
            if limits.seconds is not None and elapsed >= limits.seconds:
                return
            # A program does not depend on the programs before it.
            random = Random(f"{limits.seed}/{number}")
            program = draw_program(random, limits.devices)
            finding = runner.run(program)
            if finding is None or finding.kind in kinds:
                continue
            kinds.add(finding.kind)
            shortest, its_finding = _shortest(runner, program, finding)
            yield Found(number, shortest, its_finding)


@final
class Runner:
    """Runs programs in a separate process, and judges them in this one."""

    def __init__(self, load: Loader, limits: Limits) -> None:
        self.deadline = limits.deadline
        task = Task(load, record, starting_seconds=limits.starting_seconds, memory=limits.memory)
        self._worker = Worker(task)
        self._is_suspect = False
        """Whether the backend has just done something wrong, so that the next program needs a new
        one.
        """

    def close(self) -> None:
        self._worker.close()

    def run(
        self, program: Program, times: int = 1, deadline: float | None = None
    ) -> Finding | None:
        """Run a program up to `times` times, until something is found; return the finding, if any.

        `deadline` is the time of a run in seconds, by default that of the limits. Raises
        BackendError if the backend cannot load.
        """
        for _ in range(times):
            finding = self._run_once(program, deadline or self.deadline)
            self._is_suspect = finding is not None
            if finding is not None:
                return finding
        return None

    def _run_once(self, program: Program, deadline: float) -> Finding | None:
        """Run a program once in the other process, and return the finding, if any."""
        engine = ""
        events: list[Event] = []
        try:
            answers = self._worker.call(program, self._is_suspect, seconds=deadline)
            engine = next(answers)
            # Those before a hang or a crash are kept.
            events.extend(Event(*event) for event in answers)
        except RaisedError as error:
            return judge(program, engine, events, is_over=False) or Finding(
                f"cannot be loaded again: {error}"
            )
        except WorkError as error:
            stacks = "\n".join(error.stacks.splitlines()[:MAX_STACK_LINES])
            # The file name of each statement's code holds its position; the main thread comes last.
            positions = re.findall(r'"<statement (\d+)>', error.stacks)
            position = int(positions[-1]) if positions else None
            unfinished = Finding(str(error), position, stacks)
            return judge(program, engine, events, is_over=False) or unfinished
        return judge(program, engine, events)


def _shortest(runner: Runner, program: Program, finding: Finding) -> tuple[Program, Finding]:
    """Return a program as short as can be made in which the same is found, and its finding."""
    # A hang costs its deadline each time.
    deadline = min(runner.deadline, 4)
    fails_always = all(runner.run(program, 1, deadline) for _ in range(3))
    times = 1 if fails_always else RUNS_IN_SHRINKING

    def check(shorter: Program) -> Finding | None:
        return runner.run(shorter, times, deadline)

    return _shrink(program, finding, check)


def _shrink(
    program: Program, finding: Finding, check: Callable[[Program], Finding | None]
) -> tuple[Program, Finding]:
    """Return the shortest program in which `check` finds the same kind of fault, and the finding.

    It takes the first shorter program with that fault, and begins again with it.
    """
    end = monotonic() + MAX_SECONDS
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for shorter_program in _shorter(program):
            if monotonic() > end:
                return program, finding
            its_finding = check(shorter_program)
            if its_finding is not None and its_finding.kind == finding.kind:
                program, finding = shorter_program, its_finding
                is_shorter = True
                break
    return program, finding


def _shorter(program: Program) -> Iterator[Program]:
    """Iterate over shorter or simpler programs, those first that lack most."""
    yield from _single_threads(program)
    yield from _with_fewer_statements(program)
    yield from _with_values_loaded(program)


def _single_threads(program: Program) -> Iterator[Program]:
    """Iterate over the programs of the threads, if there are several, each alone."""
    threads = program.threads()
    if len(threads) == 1:
        return
    for positions in threads:
        alone = tuple(replace(program.statements[position], thread=0) for position in positions)
        yield replace(program, statements=alone)


def _with_fewer_statements(program: Program) -> Iterator[Program]:
    """Iterate over the programs that lack half of the statements, a quarter, down to a single one.

    Of each length the last statements are left out first.
    """
    # The last statement of each thread waits for all, and stays.
    removable: list[int] = []
    for positions in program.threads():
        removable += positions[:-1]
    removable.sort()
    length = len(removable) // 2
    while length:
        for start in range(len(removable) - length, -1, -length):
            yield program.without(removable[start : start + length])
        length //= 2


def _with_values_loaded(program: Program) -> Iterator[Program]:
    """Iterate over the programs in which one computed value is loaded as an array instead."""
    values = expected_values(program)
    for position, statement in enumerate(program.statements):
        if statement.device is None or statement.uses == ():
            continue
        (name,) = statement.defines
        if not _can_be_written(values[name]):
            continue
        literal = _literal(values[name])
        source = f"{name} = backend.asarray({literal}, devices[{statement.device}])"
        statements = list(program.statements)
        statements[position] = replace(statement, source=source, uses=(), fails="", stand_in="")
        yield replace(program, statements=tuple(statements))


def _can_be_written(content: Any) -> bool:
    """Return whether `_literal` writes a content shortly, and with numbers that will do."""
    leaves = list(tree_leaves(content))
    if len(leaves) > MAX_LEAVES:
        return False
    return all(leaf.size <= MAX_ELEMENTS or leaf.dtype.kind == "f" for leaf in leaves)


def _literal(content: Any) -> str:
    """Write a content as Python: its numbers, or made-up ones if they are many."""
    if isinstance(content, tuple):
        return tuple_text([_literal(item) for item in content])
    dtype = "bool" if content.dtype == bool else f"np.{content.dtype}"
    if not content.size:
        return f"np.zeros({content.shape}, {dtype})"
    if content.size > MAX_ELEMENTS:
        # Other numbers do as well, because the reference is computed anew.
        return f"data({content.shape}, {dtype}, 3)"
    return f"np.array({content.tolist()}, {dtype})".replace("nan", "np.nan")
