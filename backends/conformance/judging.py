"""Judges what a program did on a backend, by the reference."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from backends.arrays import tree_leaves, tree_map
from backends.conformance.programs import Program, Statement, reference_namespace
from backends.conformance.running import Event

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
    """Return the first fault in the events of a program: where they differ from the protocol.

    A program that is not over, because it hung or crashed, may still have failed later.
    """
    expected = expected_values(program)
    fails = any(statement.stand_in for statement in program.statements)
    otherwise = _values_after_other_results(program) if fails else expected
    threads = {
        statement.thread: _Thread(program, engine, expected, otherwise)
        for statement in program.statements
    }
    for event in events:
        thread = threads[program.statements[event.position].thread]
        finding = thread.fault_in(event)
        if finding is not None:
            return finding
    if is_over:
        for thread in threads.values():
            finding = thread.fault_at_end()
            if finding is not None:
                return finding
    return None


def difference(got: Any, expected: Any) -> str:
    """Say how a value differs from the expected one; an empty text if it does not."""
    if isinstance(expected, tuple):
        if not isinstance(got, tuple) or len(got) != len(expected):
            return f"gives {short(got)}; NumPy: {short(expected)}"
        return _first_difference(got, expected)
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


def _first_difference(values: Sequence[Any], expected_values: Sequence[Any]) -> str:
    """Say how the first value that differs does so; an empty text if all are as expected."""
    for value, expected in zip(values, expected_values, strict=True):
        how = difference(value, expected)
        if how:
            return how
    return ""


def short(value: Any) -> str:
    """Write a value in one line, with dots in the middle if it is long."""
    if isinstance(value, tuple):
        items = ", ".join(short(item) for item in value)
        return f"({items})"
    lines = np.array2string(np.asarray(value), threshold=8, edgeitems=2)
    text = " ".join(lines.split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _close(got: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether two arrays of one shape and dtype are equal within the tolerance."""
    tolerance = TOLERANCES.get(expected.dtype)
    if tolerance is None:
        return bool(np.array_equal(got, expected))
    finite = expected[np.isfinite(expected)]
    scale = max(1.0, float(np.abs(finite).max(initial=0)))
    return bool(np.allclose(got, expected, rtol=0, atol=tolerance * scale, equal_nan=True))


def _values_after_other_results(program: Program) -> dict[str, Any]:
    """Run a program on the reference with changed numbers wherever a computation is to fail.

    A value that differs from the expected one therefore depends on a failed computation.
    """
    namespace = reference_namespace(program.devices)
    for statement in program.statements:
        # A changed number may be no label any more; values that depend on it then have no name.
        with suppress(Exception):
            exec(statement.for_reference, namespace)
            if statement.stand_in:
                for name in statement.defines:
                    namespace[name] = tree_map(_another, namespace[name])
    return namespace


def _another(x: np.ndarray) -> np.ndarray:
    """Return an array of other numbers, with the same shape and dtype."""
    changed = ~x if x.dtype == bool else x + 1
    return np.asarray(changed, x.dtype)


@final
class _Thread:
    """The state of the statements that one Python thread runs."""

    def __init__(
        self,
        program: Program,
        engine: str,
        expected: dict[str, Any],
        otherwise: dict[str, Any],
    ) -> None:
        self._statements, self._engine = program.statements, engine
        self._expected, self._otherwise = expected, otherwise
        self._uncomputed: set[str] = set()
        """The names whose computation has failed."""
        self._failing = False
        """Whether a computation has failed, so that the backend may fail at every statement."""

    def fault_in(self, event: Event) -> Finding | None:
        """Return the finding if the next event of this thread is wrong, or None."""
        if event.verb:
            return self._fault_in_verb(event)
        statement = self._statements[event.position]
        self._failing = self._failing or statement.fails in ("computation", "either")
        if event.outcome == "fails" and (self._failing or statement.fails == "may"):
            # It has told of the failure.
            self._failing = False
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
        return Finding(what, event.position) if what else None

    def fault_at_end(self) -> Finding | None:
        """Return the finding if this thread must not end here, or None."""
        if self._failing:
            return Finding("raises no ComputationError to the end, though a computation failed")
        return None

    def _fault_in_values(self, statement: Statement, values: Sequence[Any]) -> str:
        """Say what is wrong with a statement that returns these values; an empty text: nothing."""
        # An engine with queues knows devices.
        knows_devices = self._engine == "async"
        if statement.fails == "request" or (statement.fails == "device" and knows_devices):
            return "raises no BackendError"
        names = statement.defines
        fails_itself = statement.fails in ("computation", "either")
        uses_failed = not self._uncomputed.isdisjoint(statement.uses)
        if fails_itself or uses_failed:
            self._uncomputed |= set(names)
            if statement.waits and self._has_waited_for_failure(statement):
                return "raises no ComputationError, though computing it failed"
        if not statement.waits:
            return ""
        expected = [self._expected[name] for name in names]
        return _first_difference(values, expected)

    def _has_waited_for_failure(self, statement: Statement) -> bool:
        """Return whether a statement that waits must have met the failed computation."""
        if statement.defines:
            return any(self._depend_on_failure(statement.defines))
        # The statement may wait for a single item of a value, which may not depend on the failure.
        return all(self._depend_on_failure(statement.uses))

    def _fault_in_refusal(self, statement: Statement, message: str) -> str:
        """Return what is wrong with a statement that raises BackendError; "" if nothing is."""
        if statement.fails in ("", "computation"):
            return f"raises BackendError: {message}"
        # The call was refused, so the computation that could have failed never began.
        if statement.fails == "either":
            self._failing = False
        return ""

    def _fault_in_verb(self, event: Event) -> Finding | None:
        """Return the finding if a verb that was called after a failure does not refuse, or None."""
        match event.outcome:
            case "fails":
                return None
            case "returns":
                return Finding(f"{event.verb} does not refuse after a failure")
        raised = f"{event.verb} raises {event.error} after a failure"
        return Finding(f"{raised}, not ComputationError: {event.message}")

    def _depend_on_failure(self, names: Iterable[str]) -> Iterator[bool]:
        """Iterate over the arrays of these values: whether each depends on a failed computation."""
        for name in names:
            arrays = list(tree_leaves(self._expected[name]))
            if name not in self._otherwise:
                yield from [True] * len(arrays)
                continue
            other_arrays = tree_leaves(self._otherwise[name])
            for x, other in zip(arrays, other_arrays, strict=True):
                yield not np.array_equal(x, other, equal_nan=True)
