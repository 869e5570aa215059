"""Runs a program on a backend and on the reference, and says what is unlike."""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from backends.arrays import tree_leaves, tree_map
from backends.conformance.programs import Program, Statement, namespace_for, reference_namespace
from backends.errors import BackendError, ComputationError
from backends.protocol import VERBS, Backend

TOLERANCES = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}
"""By dtype; relative to the largest number of an array. All other dtypes must be equal."""


@final
@dataclass(frozen=True)
class Finding:
    """What a backend did wrong, and at which statement of the program; None: after the last one."""

    what: str
    place: int | None = None
    stacks: str = ""
    """What each thread did, of a program that hangs or crashes."""

    @property
    def kind(self) -> str:
        """What it says, without the numbers and shapes that differ from program to program."""
        return re.sub(r"(?<=wrong numbers).*|[(\[].*|[^a-zA-Z ]", "", self.what)


def expected_values(program: Program) -> dict[str, Any]:
    """Run a program on the reference, and return all that its statements named."""
    namespace = reference_namespace(program.devices)
    for statement in program.statements:
        exec(statement.for_reference, namespace)
    return namespace


def _other_values(program: Program) -> dict[str, Any]:
    """Return those with other numbers in the place of what fails: what differs depends on it."""
    namespace = reference_namespace(program.devices)
    for statement in program.statements:
        # A number that has become another one may be no label any more; what depends on it has no name then.
        with suppress(Exception):
            exec(statement.for_reference, namespace)
            if statement.stand_in:
                namespace |= {name: tree_map(_another, namespace[name]) for name in statement.defines}
    return namespace


def _another(x: np.ndarray) -> np.ndarray:
    return np.asarray(~x if x.dtype == bool else x + 1, x.dtype)


def run(program: Program, backend: Backend) -> Finding | None:
    """Run a program on a backend, and return the first thing that is not as the protocol says."""
    findings: list[Finding] = []
    first, *others = [_Thread(program, places, backend, findings.append) for places in program.threads()]
    running = [threading.Thread(target=other.run) for other in others]
    for thread in running:
        thread.start()
    first.run()
    for thread in running:
        thread.join()
    return next(iter(findings), None)


class _Thread:
    """The statements that one Python thread runs."""

    def __init__(
        self, program: Program, places: Sequence[int], backend: Backend, report: Callable[[Finding], object]
    ) -> None:
        self._report = report
        self._program, self._places, self._backend = program, places, backend
        self._expected = expected_values(program)
        fails = any(statement.stand_in for statement in program.statements)
        self._otherwise = _other_values(program) if fails else self._expected
        self._namespace = namespace_for(backend)
        # Beforehand: what is issued slowly meets no earlier work.
        self._compiled = {
            place: compile(program.statements[place].source, f"<statement {place}>", "exec") for place in places
        }
        self._uncomputed: set[str] = set()
        """The names whose computation has failed."""
        self._refused: set[str] = set()
        """The names that a refused statement would have defined, and those that depend on them."""
        self._failing = False

    def run(self) -> None:
        """Run the statements until something is found, or the backend has rightly failed."""
        for place in self._places:
            statement = self._program.statements[place]
            if self._refused & set(statement.uses):
                self._refused |= set(statement.defines)
                continue
            self._failing = self._failing or statement.fails in ("computation", "either")
            try:
                exec(self._compiled[place], self._namespace)
                what = self._after(statement)
            except ComputationError as error:
                if self._failing or statement.fails == "may":
                    if accepting := _accepting(self._backend):
                        self._report(accepting)
                    return
                what = f"raises ComputationError: {_line(error)}"
            except BackendError as error:
                what = self._after_refusal(statement, error)
            except BaseException as error:
                what = f"raises {type(error).__name__}, not ComputationError: {_line(error)}"
            if what:
                self._report(Finding(what, place))
                return
        if self._failing:
            self._report(Finding("raises no ComputationError to the end, though a computation failed"))

    def _after(self, statement: Statement) -> str:
        """Say what is wrong if a statement raises nothing."""
        if statement.fails == "request" or (statement.fails == "device" and self._backend.engine == "async"):
            return "raises no BackendError"
        if statement.fails in ("computation", "either") or self._uncomputed & set(statement.uses):
            self._uncomputed |= set(statement.defines)
            read = [leaf for name in statement.defines for leaf in self._depends(name)]
            used = [leaf for name in statement.uses for leaf in self._depends(name)]
            # It may wait for only an item that was computed from what did not fail.
            if statement.waits and (any(read) if statement.defines else all(used)):
                return "raises no ComputationError, though computing it failed"
        if statement.waits:
            return next(filter(None, (self._difference(name) for name in statement.defines)), "")
        return ""

    def _after_refusal(self, statement: Statement, error: BackendError) -> str:
        """Say what is wrong if a statement raises BackendError."""
        if statement.fails in ("", "computation"):
            return f"raises BackendError: {_line(error)}"
        self._refused |= set(statement.defines)
        # Refused at the call, it is no computation that failed.
        self._failing = self._failing and statement.fails != "either"
        return ""

    def _depends(self, name: str) -> list[bool]:
        """Return for each array of a value whether it depends on what failed."""
        leaves = list(tree_leaves(self._expected[name]))
        others = list(tree_leaves(self._otherwise[name])) if name in self._otherwise else [None] * len(leaves)
        pairs = zip(leaves, others, strict=True)
        return [other is None or not np.array_equal(x, other, equal_nan=True) for x, other in pairs]

    def _difference(self, name: str) -> str:
        return _difference(self._namespace[name], self._expected[name])


def _accepting(backend: Backend) -> Finding | None:
    """Find a verb that does not refuse although a computation failed."""
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
        call: Callable[..., Any] = getattr(backend, verb)
        try:
            call(*arguments[verb])
        except ComputationError:
            continue
        except BaseException as error:
            return Finding(
                f"{verb} raises {type(error).__name__} after a failure, not ComputationError: {_line(error)}"
            )
        return Finding(f"{verb} does not refuse after a failure")
    return None


def _difference(got: Any, expected: Any) -> str:
    """Say how two values differ; empty if they do not."""
    if isinstance(expected, tuple):
        if not isinstance(got, tuple) or len(got) != len(expected):
            return f"gives {_short(got)}; NumPy: {_short(expected)}"
        return next(filter(None, map(_difference, got, expected)), "")
    if isinstance(expected, int):
        return "" if got == expected else f"gives {got}; NumPy: {expected}"
    if not isinstance(got, np.ndarray):
        return f"gives a {type(got).__name__}, not an array"
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"gives {got.shape} {got.dtype}; NumPy: {expected.shape} {expected.dtype}"
    if _close(got, expected):
        return ""
    return f"gives wrong numbers: {_short(got)}; NumPy: {_short(expected)}"


def _close(got: np.ndarray, expected: np.ndarray) -> bool:
    tolerance = TOLERANCES.get(expected.dtype)
    if tolerance is None:
        return bool(np.array_equal(got, expected))
    finite = expected[np.isfinite(expected)]
    scale = max(1.0, float(np.abs(finite).max(initial=0)))
    return bool(np.allclose(got, expected, rtol=0, atol=tolerance * scale, equal_nan=True))


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_short, value))})"
    text = " ".join(np.array2string(np.asarray(value), threshold=8, edgeitems=2).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
