"""Draws programs and runs them, until something is found or the time is over; what is found is made shorter.

They run in a separate process, which is killed when it hangs: a backend that hangs cannot be unwound.
"""

import faulthandler
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, ClassVar, final

from backends.arrays import tree_leaves
from backends.conformance.drawing import draw_program
from backends.conformance.model import tuple_text
from backends.conformance.programs import Program
from backends.conformance.running import Finding, expected_values, run
from backends.errors import BackendError
from backends.protocol import Backend

Loader = Callable[[int], Backend]
"""Loads a backend with so many devices; it travels to another process, so it must be picklable."""
RUNS_IN_SHRINKING = 5
"""What depends on the timing shows itself in one of so many runs, or else the program stays as long as it is."""
MAX_SECONDS = 45
MAX_ELEMENTS = 12
"""So many numbers of an array are written out."""
MAX_LEAVES = 6
MAX_STACK_LINES = 60


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
        statements = [*self.program.statements]
        if (place := self.finding.place) is not None:
            source = f"{statements[place].source}  # {self.finding.what}"
            statements[place] = replace(statements[place], source=source)
        text = replace(self.program, statements=tuple(statements)).text(loading.format(self.program.devices))
        return "\n".join(filter(None, (text, self.finding.stacks)))


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


def search(
    load: Loader, limits: Limits, on_program: Callable[[int, float], object] = lambda *_: None
) -> Iterator[Found]:
    """Iterate over what is found, each kind once; `on_program` receives the number of programs and the seconds."""
    start = monotonic()
    kinds: set[str] = set()
    with closing(Worker(load, limits.deadline)) as worker:
        for number in count(limits.first):
            done, elapsed = number - limits.first, monotonic() - start
            on_program(done, elapsed)
            if done == limits.programs or (limits.seconds is not None and elapsed >= limits.seconds):
                return
            # It does not depend on the programs before it.
            program = draw_program(Random(f"{limits.seed}/{number}"), limits.devices)
            finding = worker.run(program)
            if finding is None or finding.kind in kinds:
                continue
            kinds.add(finding.kind)
            yield Found(number, *_shortest(worker, program, finding))


class Conformance:
    """Checks a backend against the protocol. Abstract: a class of tests inherits it, and says how to load the backend.

    In a file of tests, for pytest:

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
            raise AssertionError(f"{found.finding.what}, in program {found.number}:\n\n{found.text(loading)}")


@final
class Worker:
    """A process that runs programs one after the other, and is started again after a hang or a crash."""

    def __init__(self, load: Loader, deadline: float) -> None:
        self._load, self.deadline = load, deadline
        self._folder = TemporaryDirectory(prefix="conformance-")
        self._stacks = Path(self._folder.name, "stacks")
        self._process: Any = None
        self._connection: Connection

    def close(self) -> None:
        self._kill()
        self._folder.cleanup()

    def run(self, program: Program, times: int = 1, deadline: float | None = None) -> Finding | None:
        """Run a program so many times, or until something is found; raises BackendError if the backend cannot load."""
        deadline = deadline or self.deadline
        if self._process is None:
            self._start()
        try:
            self._connection.send((program, times, deadline))
            # The process ends itself; but if one thread keeps the interpreter's lock, it cannot.
            if not self._connection.poll(deadline * times + 2):
                return self._ended("hangs")
            answer: Finding | None = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join(5)
            timed_out = self._stacks.read_text(errors="replace").startswith("Timeout")
            return self._ended("hangs" if timed_out else f"crashes the process ({self._how_it_ended()})")
        return answer

    def _start(self) -> None:
        # Not forked: frameworks do not survive a fork, and each worker imports its own.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._load, self._stacks), daemon=True)
        self._process.start()
        theirs.close()
        # The first import of a framework may take long; it is no part of a program's deadline.
        try:
            error = self._connection.recv()
        except EOFError:
            self._process.join(5)
            error = BackendError(
                f"the process that runs programs ended before it had loaded the backend ({self._how_it_ended()}): "
                f"a script needs `if __name__ == '__main__'` around the search"
            )
        if error is not None:
            self._kill()
            raise error

    def _how_it_ended(self) -> str:
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def _ended(self, what: str) -> Finding:
        stacks = self._stacks.read_text(errors="replace") if self._stacks.exists() else ""
        self._kill()
        return Finding(what, _place_of(stacks), "\n".join(stacks.splitlines()[:MAX_STACK_LINES]))

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
            self._connection.close()


def _shortest(worker: Worker, program: Program, finding: Finding) -> tuple[Program, Finding]:
    # A hang costs its deadline each time.
    deadline = min(worker.deadline, 4)
    always = all(worker.run(program, 1, deadline) for _ in range(3))
    return _shrink(program, finding, lambda one: worker.run(one, 1 if always else RUNS_IN_SHRINKING, deadline))


def _shrink(program: Program, finding: Finding, check: Callable[[Program], Finding | None]) -> tuple[Program, Finding]:
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
        for places in threads:
            alone = tuple(replace(program.statements[place], thread=0) for place in places)
            yield replace(program, statements=alone)
    # The last statement of each thread waits for all.
    removable = sorted(place for places in threads for place in places[:-1])
    length = len(removable) // 2
    while length:
        for start in range(len(removable) - length, -1, -length):
            yield program.without(removable[start : start + length])
        length //= 2
    values = expected_values(program)
    for place, statement in enumerate(program.statements):
        if statement.device is None or statement.uses == ():
            continue
        (name,) = statement.defines
        leaves = list(tree_leaves(values[name]))
        if len(leaves) <= MAX_LEAVES and all(leaf.size <= MAX_ELEMENTS or leaf.dtype.kind == "f" for leaf in leaves):
            source = f"{name} = backend.asarray({_literal(values[name])}, devices[{statement.device}])"
            simple = replace(statement, source=source, uses=(), fails="", stand_in="")
            yield replace(program, statements=(*program.statements[:place], simple, *program.statements[place + 1 :]))


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
    places = [line for line in stacks.splitlines() if '"<statement ' in line]
    return int(places[-1].split('"<statement ')[1].split(">")[0]) if places else None


def _serve(connection: Connection, load: Loader, stacks: Path) -> None:
    # An interrupt is for the process that shows it; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    backends: dict[int, Backend] = {}
    with stacks.open("w") as file:
        faulthandler.enable(file)
        try:
            _load_for(backends, load, 1)
        except Exception as error:
            raw = "" if isinstance(error, BackendError) else f"{type(error).__name__}: "
            connection.send(BackendError(f"{raw}{error}"))
            return
        connection.send(None)
        while True:
            program, times, deadline = connection.recv()
            file.seek(0)
            file.truncate()
            finding = None
            while times and finding is None:
                faulthandler.dump_traceback_later(deadline, exit=True, file=file)
                finding = _run_and_reload(program, backends, load)
                faulthandler.cancel_dump_traceback_later()
                times -= 1
            connection.send(finding)


def _run_and_reload(program: Program, backends: dict[int, Backend], load: Loader) -> Finding | None:
    """Run a program; a backend that may have failed is replaced, and that must be possible."""
    try:
        finding = run(program, _load_for(backends, load, program.devices))
        if finding is not None or any(statement.fails for statement in program.statements):
            backends.clear()
            _load_for(backends, load, program.devices)
    except Exception as error:
        return Finding(f"raises {type(error).__name__} when it is loaded again: {error}")
    return finding


def _load_for(backends: dict[int, Backend], load: Loader, devices: int) -> Backend:
    if devices not in backends:
        backends.clear()
        backends[devices] = load(devices)
    return backends[devices]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
