"""Runs a program on a backend and on the reference, and says what is unlike."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from backends.conformance.programs import HELPERS, Program
from backends.conformance.reference import Reference
from backends.devices import Device
from backends.errors import BackendError, ComputationError
from backends.protocol import VERBS, Backend

__all__ = ["Finding", "expected_values", "namespace_for", "run"]

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
        """What it says without the details that differ from program to program."""
        return re.sub(r"[^a-z ]+.*| on .*", "", self.what, flags=re.IGNORECASE)


def namespace_for(backend: Any) -> dict[str, Any]:
    """Return the names that statements find."""
    namespace = {
        "np": np,
        "backend": backend,
        "ops": backend.ops,
        "devices": backend.devices,
        "Device": Device,
    }
    for helper in HELPERS.values():
        exec(helper, namespace)
    return namespace


def expected_values(program: Program) -> dict[str, Any]:
    """Run a program on the reference, and return all that its statements named."""
    namespace = namespace_for(Reference(program.devices))
    for statement in program.statements:
        exec(statement.for_reference, namespace)
    return namespace


def run(program: Program, backend: Backend) -> Finding | None:
    """Run a program on a backend, and return the first thing that is not as the protocol says."""
    expected = expected_values(program)
    namespace = namespace_for(backend)
    tainted: set[str] = set()
    absent: set[str] = set()
    failing = False
    for place, statement in enumerate(program.statements):
        uses = set(statement.uses)
        if uses & absent:
            absent |= set(statement.defines)
            continue
        failing = failing or statement.fails in ("computation", "either")
        try:
            exec(compile(statement.source, f"<statement {place}>", "exec"), namespace)
        except ComputationError as error:
            if failing:
                return _accepting(backend, namespace)
            return Finding(f"raises ComputationError: {_line(error)}", place)
        except BackendError as error:
            if statement.fails in ("request", "either", "device", "perhaps"):
                absent |= set(statement.defines)
                failing = failing and statement.fails != "either"
                continue
            return Finding(f"raises BackendError: {_line(error)}", place)
        except BaseException as error:
            return Finding(f"raises {type(error).__name__}, not ComputationError: {_line(error)}", place)
        if statement.fails == "request" or (statement.fails == "device" and backend.engine == "async"):
            return Finding("raises no BackendError", place)
        if statement.fails in ("computation", "either") or uses & tainted:
            if statement.waits:
                return Finding("raises no ComputationError, though computing it failed", place)
            tainted |= set(statement.defines)
        elif statement.waits and statement.defines:
            (name,) = statement.defines
            if unlike := _difference(namespace[name], expected[name]):
                return Finding(unlike, place)
    return Finding("no verb raised ComputationError, though a computation failed") if failing else None


def _accepting(backend: Backend, namespace: dict[str, Any]) -> Finding | None:
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
        call: Callable[..., Any] = getattr(namespace["backend"], verb)
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
    return f"gives {_short(got)}; NumPy: {_short(expected)}"


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
