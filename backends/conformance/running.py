"""Runs a program on a backend, in the process of the backend, and tells what each statement did.

It judges nothing.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType
from typing import Any, Literal, NamedTuple

import numpy as np

from backends.conformance.programs import Program, namespace_for
from backends.conformance.serving import Answer, Loaded
from backends.errors import BackendError, ComputationError, message_of
from backends.protocol import VERBS, Backend

Outcome = Literal["returns", "fails", "refuses", "raises"]
"""What a call did: it returned, or raised ComputationError, another BackendError, or anything
else.
"""


class Event(NamedTuple):
    """An event: what a statement did, or a verb that was called after one had failed."""

    position: int
    """The number of the statement."""
    verb: str
    """The verb that was called after this statement had failed; empty: it is about the
    statement.
    """
    outcome: Outcome
    error: str
    """The type of what was raised."""
    message: str
    """The first line of its message."""
    values: list[Any]
    """What a statement that waits has computed, for each name that it defines."""


Report = Callable[[Event], object]


def record(loaded: Loaded, answer: Answer, program: Program, anew: bool) -> None:
    """Run a program, on a new backend if `anew`.

    Answer with the backend's engine first, and then with each event as it comes.
    """
    backend = loaded.on(program.devices, anew)
    answer(backend.engine)
    run(program, backend, answer)
    # It must be possible to replace a backend that has failed.
    if any(statement.fails for statement in program.statements):
        loaded.on(program.devices, anew=True)


def run(program: Program, backend: Backend, report: Report) -> None:
    """Run a program on a backend, and report the event of each statement when it is over."""
    # Compiled before: a statement that is issued slowly meets no earlier work.
    codes = [
        compile(statement.source, f"<statement {position}>", "exec")
        for position, statement in enumerate(program.statements)
    ]
    run_first, *run_others = [
        partial(_run_thread, program, positions, codes, backend, report)
        for positions in program.threads()
    ]
    threads = [threading.Thread(target=run_thread) for run_thread in run_others]
    for thread in threads:
        thread.start()
    # The first thread of the program is this one.
    run_first()
    for thread in threads:
        thread.join()


def _run_thread(
    program: Program,
    positions: Sequence[int],
    codes: Sequence[CodeType],
    backend: Backend,
    report: Report,
) -> None:
    """Run the statements of one Python thread, until a statement fails.

    A statement that is refused defines nothing, so those that use its values are left out.
    """
    namespace = namespace_for(backend)
    refused: set[str] = set()
    for position in positions:
        statement = program.statements[position]
        if refused & set(statement.uses):
            refused |= set(statement.defines)
            continue
        try:
            exec(codes[position], namespace)
        except BaseException as error:
            event = _raised(position, "", error)
            report(event)
            if event.outcome == "refuses":
                refused |= set(statement.defines)
                continue
            if event.outcome == "fails":
                _call_verbs(position, backend, report)
            return
        values = []
        if statement.waits:
            values = [namespace[name] for name in statement.defines]
        report(_returned(position, "", values))


def _call_verbs(position: int, backend: Backend, report: Report) -> None:
    """Call all verbs after a statement has failed, and report each, until one does not refuse."""
    x = np.zeros(2, np.float32)
    device = backend.devices[0]
    arguments: dict[str, tuple[Any, ...]] = {
        "launch": (lambda: None,),
        "wait": (x,),
        "waitall": (),
        "copy_to": (x, device),
        "split_and_load": (x, [device]),
        "allreduce": ([x],),
        "asarray": (x, device),
        "to_numpy": (x,),
    }
    for verb in VERBS:
        call: Callable[..., object] = getattr(backend, verb)
        try:
            call(*arguments[verb])
            event = _returned(position, verb, [])
        except BaseException as error:
            event = _raised(position, verb, error)
        report(event)
        if event.outcome != "fails":
            return


def _returned(position: int, verb: str, values: list[Any]) -> Event:
    """Return the event of a call that returned."""
    return Event(position, verb, "returns", "", "", values)


def _raised(position: int, verb: str, error: BaseException) -> Event:
    """Return the event of a call that raised an error."""
    outcome: Outcome
    match error:
        case ComputationError():
            outcome = "fails"
        case BackendError():
            outcome = "refuses"
        case _:
            outcome = "raises"
    first_line, *_ = message_of(error).splitlines() or [""]
    return Event(position, verb, outcome, type(error).__name__, first_line, [])
