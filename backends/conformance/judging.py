"""Judges what a program did on a backend: by the reference, and away from the backend, which could
replace a judge.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from backends.arrays import tree_leaves, tree_map
from backends.conformance.programs import Program, Statement, reference_namespace
from backends.conformance.running import Event
from backends.protocol import VERBS

TOLERANCES = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}
"""By dtype; relative to the largest number of an array. All other dtypes must be equal."""


@final
@dataclass(frozen=True)
class Finding:
    """A finding: what a backend did wrong, and at which statement; None: after the last one."""

    what: str
    position: int | None = None
    stacks: str = ""
    """What each thread did, of a program that hangs or crashes."""

    @property
    def kind(self) -> str:
        """The finding without the numbers and shapes that differ from program to program."""
        return re.sub(r"(?<=wrong numbers).*|[(\[].*|[^a-zA-Z ]", "", self.what)


def expected_values(program: Program) -> dict[str, Any]:
    """Run a program on the reference, and return all that its statements named."""
    namespace = reference_namespace(program.devices)
    for statement in program.statements:
        exec(statement.for_reference, namespace)
    return namespace


def judge(
    program: Program, engine: str, events: Iterable[Event], is_over: bool = True
) -> Finding | None:
    """Return the first thing in the events of a program on an engine that is not as the protocol
    says.

    If the program is not over, because it hung or crashed, what is missing is no fault.
    """
    expected = expected_values(program)
    fails = any(statement.stand_in for statement in program.statements)
    otherwise = _other_values(program) if fails else expected
    thread_of: dict[int, _Thread] = {}
    threads: list[_Thread] = []
    for positions in program.threads():
        thread = _Thread(program, engine, positions, expected, otherwise)
        threads.append(thread)
        thread_of |= dict.fromkeys(positions, thread)
    for event in events:
        if event.position not in thread_of:
            return Finding("answers for a statement that the program does not have")
        finding = thread_of[event.position].fault_in(event)
        if finding is not None:
            return finding
    if is_over:
        for thread in threads:
            finding = thread.fault_at_end()
            if finding is not None:
                return finding
    return None


def difference(got: Any, expected: Any) -> str:
    """Say how a value differs from what is expected; empty if it does not."""
    if isinstance(expected, tuple):
        if not isinstance(got, tuple) or len(got) != len(expected):
            return f"gives {short(got)}; NumPy: {short(expected)}"
        return next(filter(None, map(difference, got, expected)), "")
    if isinstance(expected, int):
        is_equal = isinstance(got, int) and got == expected
        return "" if is_equal else f"gives {short(got)}; NumPy: {expected}"
    if not isinstance(got, np.ndarray):
        return f"gives {got!r}, not an array"
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"gives {got.shape} {got.dtype}; NumPy: {expected.shape} {expected.dtype}"
    if _close(got, expected):
        return ""
    return f"gives wrong numbers: {short(got)}; NumPy: {short(expected)}"


def short(value: Any) -> str:
    """Write a value in one line, with dots in the middle if it is long."""
    if isinstance(value, tuple):
        return f"({', '.join(map(short, value))})"
    text = " ".join(np.array2string(np.asarray(value), threshold=8, edgeitems=2).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _close(got: np.ndarray, expected: np.ndarray) -> bool:
    tolerance = TOLERANCES.get(expected.dtype)
    if tolerance is None:
        return bool(np.array_equal(got, expected))
    finite = expected[np.isfinite(expected)]
    scale = max(1.0, float(np.abs(finite).max(initial=0)))
    return bool(np.allclose(got, expected, rtol=0, atol=tolerance * scale, equal_nan=True))


def _other_values(program: Program) -> dict[str, Any]:
    """Return the values with other numbers in the place of what fails: what differs depends on
    it.
    """
    namespace = reference_namespace(program.devices)
    for statement in program.statements:
        # A number that has become another one may be no label any more; what depends on it has no
        # name then.
        with suppress(Exception):
            exec(statement.for_reference, namespace)
            if statement.stand_in:
                namespace |= {
                    name: tree_map(_another, namespace[name]) for name in statement.defines
                }
    return namespace


def _another(x: np.ndarray) -> np.ndarray:
    return np.asarray(~x if x.dtype == bool else x + 1, x.dtype)


@final
class _Thread:
    """The state of the statements that one Python thread runs."""

    def __init__(
        self,
        program: Program,
        engine: str,
        positions: Sequence[int],
        expected: dict[str, Any],
        otherwise: dict[str, Any],
    ) -> None:
        self._statements, self._engine = program.statements, engine
        self._due = deque(positions)
        self._expected, self._otherwise = expected, otherwise
        self._uncomputed: set[str] = set()
        """The names whose computation has failed."""
        self._refused: set[str] = set()
        """The names that a refused statement would have defined, and those that depend on them."""
        self._failing = False
        """Whether a computation has failed, so that the backend may fail at every statement."""
        self._refusing: deque[str] | None = None
        """The verbs that have yet to refuse, after the backend has rightly failed."""

    def fault_in(self, event: Event) -> Finding | None:
        """Return what is wrong with the next event of this thread."""
        if event.verb:
            return self._fault_in_verb(event)
        position = self._next_position()
        if position is None or event.position != position or self._refusing is not None:
            return Finding("answers for another statement than the next one")
        statement = self._statements[position]
        self._failing = self._failing or statement.fails in ("computation", "either")
        if event.outcome == "fails" and (self._failing or statement.fails == "may"):
            self._refusing = deque(VERBS)
            return None
        match event.outcome:
            case "returns":
                what = self._fault_in_values(statement, event.values)
            case "fails":
                what = f"raises ComputationError: {event.message}"
            case "refuses":
                what = self._fault_in_refusal(statement, event.message)
            case "raises":
                what = f"raises {event.error}, not ComputationError: {event.message}"
        return Finding(what, position) if what else None

    def fault_at_end(self) -> Finding | None:
        """Return what is wrong if this thread has no further event."""
        if self._refusing is not None:
            return Finding("calls too few verbs after a failure") if self._refusing else None
        if self._next_position() is not None:
            return Finding("leaves out a statement")
        if self._failing:
            return Finding("raises no ComputationError to the end, though a computation failed")
        return None

    def _next_position(self) -> int | None:
        """Take the next statement that has to be run, and leave out those that use what was
        refused.
        """
        while self._due:
            position = self._due.popleft()
            statement = self._statements[position]
            if not self._refused & set(statement.uses):
                return position
            self._refused |= set(statement.defines)
        return None

    def _fault_in_values(self, statement: Statement, values: Sequence[Any]) -> str:
        """Say what is wrong if a statement raises nothing."""
        if statement.fails == "request" or (
            statement.fails == "device" and self._engine == "async"
        ):
            return "raises no BackendError"
        names = statement.defines
        if statement.fails in ("computation", "either") or self._uncomputed & set(statement.uses):
            self._uncomputed |= set(names)
            if statement.waits and self._has_waited_for_failure(statement):
                return "raises no ComputationError, though computing it failed"
        if not statement.waits:
            return ""
        if len(values) != len(names):
            return "answers with too few values"
        expected = [self._expected[name] for name in names]
        return next(filter(None, map(difference, values, expected)), "")

    def _has_waited_for_failure(self, statement: Statement) -> bool:
        """Return whether a statement cannot be over without the failure of what it waits for."""
        if statement.defines:
            return any(
                is_uncomputed for name in statement.defines for is_uncomputed in self._depends(name)
            )
        # It may wait for only an item that was computed from what did not fail.
        return all(
            is_uncomputed for name in statement.uses for is_uncomputed in self._depends(name)
        )

    def _fault_in_refusal(self, statement: Statement, message: str) -> str:
        """Say what is wrong if a statement raises BackendError."""
        if statement.fails in ("", "computation"):
            return f"raises BackendError: {message}"
        self._refused |= set(statement.defines)
        # Refused at the call, it is no computation that failed.
        self._failing = self._failing and statement.fails != "either"
        return ""

    def _fault_in_verb(self, event: Event) -> Finding | None:
        """Return what is wrong with a verb that was called after a failure."""
        if not self._refusing or self._refusing.popleft() != event.verb:
            return Finding("calls another verb than the next one")
        match event.outcome:
            case "fails":
                return None
            case "returns":
                return Finding(f"{event.verb} does not refuse after a failure")
        raised = f"{event.verb} raises {event.error} after a failure"
        return Finding(f"{raised}, not ComputationError: {event.message}")

    def _depends(self, name: str) -> Iterator[bool]:
        """Iterate over the arrays of a value: whether each depends on what failed."""
        leaves = list(tree_leaves(self._expected[name]))
        if name not in self._otherwise:
            yield from [True] * len(leaves)
            return
        for x, other in zip(leaves, tree_leaves(self._otherwise[name]), strict=True):
            yield not np.array_equal(x, other, equal_nan=True)
