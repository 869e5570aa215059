"""Draws programs and runs them, until something is found or the time is over.

What is found is made shorter. They run in a separate process, which is killed when it hangs: a
backend that hangs cannot be unwound.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from time import monotonic
from typing import Any, ClassVar, final

from backends.arrays import tree_leaves
from backends.conformance.drawing import draw_program
from backends.conformance.judging import Finding, expected_values, judge
from backends.conformance.model import tuple_text
from backends.conformance.programs import Program
from backends.conformance.running import Event, record
from backends.conformance.serving import Loader, Task
from backends.conformance.worker import RaisedError, Worker, WorkError

RUNS_IN_SHRINKING = 5
"""What depends on the timing shows itself in one of so many runs, or else the program stays as long
as it is.
"""
MAX_SECONDS = 45
MAX_ELEMENTS = 12
"""So many numbers of an array are written out."""
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
        """Write the program, with what is wrong behind its statement, and each thread's stack if it
        hangs.

        In `loading`, the call that loads the backend, `{}` stands for the number of devices.
        """
        statements = [*self.program.statements]
        if (position := self.finding.position) is not None:
            source = f"{statements[position].source}  # {self.finding.what}"
            statements[position] = replace(statements[position], source=source)
        text = replace(self.program, statements=tuple(statements)).text(
            loading.format(self.program.devices)
        )
        return "\n".join(filter(None, (text, self.finding.stacks)))


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
    """Iterate over what is found, each kind once.

    `on_program` receives the number of programs and the seconds.
    """
    start = monotonic()
    kinds: set[str] = set()
    with closing(Runner(load, limits)) as runner:
        for number in count(limits.first):
            done, elapsed = number - limits.first, monotonic() - start
            on_program(done, elapsed)
            if done == limits.programs or (
                limits.seconds is not None and elapsed >= limits.seconds
            ):
                return
            # It does not depend on the programs before it.
            program = draw_program(Random(f"{limits.seed}/{number}"), limits.devices)
            finding = runner.run(program)
            if finding is None or finding.kind in kinds:
                continue
            kinds.add(finding.kind)
            yield Found(number, *_shortest(runner, program, finding))


class Conformance:
    """Checks a backend against the protocol.

    Abstract: a class of tests inherits it, and says how to load the backend. In a file of tests,
    for pytest:

        from backends.conformance import Conformance

        class TestMine(Conformance):
            @staticmethod
            def load(devices: int) -> Backend:
                return backends.load("mine", devices)

    `load` runs in another process, which must be able to import the file it stands in.
    """

    load: ClassVar[Loader]
    limits = Limits(programs=100)

    def test_random_programs_give_what_numpy_gives(self) -> None:
        loading = f"{type(self).__name__}.load({{}})"
        for found in search(type(self).load, self.limits):
            raise AssertionError(
                f"{found.finding.what}, in program {found.number}:\n\n{found.text(loading)}"
            )


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
        """Run a program so many times, or until something is found.

        Raises BackendError if the backend cannot load.
        """
        for _ in range(times):
            finding = self._run_once(program, deadline or self.deadline)
            self._is_suspect = finding is not None
            if finding is not None:
                return finding
        return None

    def _run_once(self, program: Program, deadline: float) -> Finding | None:
        engine = ""
        events: list[Event] = []
        try:
            answers = self._worker.call(program, self._is_suspect, seconds=deadline)
            engine = str(next(answers, ""))
            # Those before a hang or a crash are kept.
            events.extend(map(Event.read, answers))
        except RaisedError as error:
            return judge(program, engine, events, is_over=False) or Finding(
                f"cannot be loaded again: {error}"
            )
        except WorkError as error:
            stacks = "\n".join(error.stacks.splitlines()[:MAX_STACK_LINES])
            unfinished = Finding(str(error), _place_of(error.stacks), stacks)
            return judge(program, engine, events, is_over=False) or unfinished
        except ValueError as error:
            return Finding(f"answers with what is {error}")
        return judge(program, engine, events)


def _shortest(runner: Runner, program: Program, finding: Finding) -> tuple[Program, Finding]:
    # A hang costs its deadline each time.
    deadline = min(runner.deadline, 4)
    always = all(runner.run(program, 1, deadline) for _ in range(3))
    return _shrink(
        program, finding, lambda one: runner.run(one, 1 if always else RUNS_IN_SHRINKING, deadline)
    )


def _shrink(
    program: Program, finding: Finding, check: Callable[[Program], Finding | None]
) -> tuple[Program, Finding]:
    """Return a shorter program in which the same is found; `check` runs one."""
    end = monotonic() + MAX_SECONDS
    progress = True
    while progress:
        progress = False
        for shorter in _shorter(program):
            if monotonic() > end:
                return program, finding
            found = check(shorter)
            if found and found.kind == finding.kind:
                program, finding, progress = shorter, found, True
                break
    return program, finding


def _shorter(program: Program) -> Iterator[Program]:
    """Iterate over programs with fewer statements, or simpler ones, those first that lack most."""
    threads = program.threads()
    if len(threads) > 1:
        for positions in threads:
            alone = tuple(replace(program.statements[position], thread=0) for position in positions)
            yield replace(program, statements=alone)
    # The last statement of each thread waits for all.
    removable = sorted(position for positions in threads for position in positions[:-1])
    length = len(removable) // 2
    while length:
        for start in range(len(removable) - length, -1, -length):
            yield program.without(removable[start : start + length])
        length //= 2
    values = expected_values(program)
    for position, statement in enumerate(program.statements):
        if statement.device is None or statement.uses == ():
            continue
        (name,) = statement.defines
        leaves = list(tree_leaves(values[name]))
        if len(leaves) <= MAX_LEAVES and all(
            leaf.size <= MAX_ELEMENTS or leaf.dtype.kind == "f" for leaf in leaves
        ):
            source = (
                f"{name} = backend.asarray({_literal(values[name])}, devices[{statement.device}])"
            )
            simple = replace(statement, source=source, uses=(), fails="", stand_in="")
            yield replace(
                program,
                statements=(
                    *program.statements[:position],
                    simple,
                    *program.statements[position + 1 :],
                ),
            )


def _literal(content: Any) -> str:
    if isinstance(content, tuple):
        return tuple_text([_literal(item) for item in content])
    dtype = "bool" if content.dtype == bool else f"np.{content.dtype}"
    if not content.size:
        return f"np.zeros({content.shape}, {dtype})"
    if content.size > MAX_ELEMENTS:
        # Other numbers do as well, because the reference is computed anew.
        return f"data({content.shape}, {dtype}, 3)"
    return f"np.array({content.tolist()}, {dtype})".replace("nan", "np.nan")


def _place_of(stacks: str) -> int | None:
    """Return the number of the statement in which the main thread was, which names its code."""
    positions = [line for line in stacks.splitlines() if '"<statement ' in line]
    return int(positions[-1].split('"<statement ')[1].split(">")[0]) if positions else None
