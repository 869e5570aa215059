"""Programs: statements of Python over the protocol's verbs, which give names to what they make.

A program is text, so that what is run is what is printed: a person can paste it into a file and run
it. Every name is given once, and each statement says which names it uses, so that statements can be
left out when a program is shrunk.

The reference is the protocol as plain functions of NumPy's arrays: what each verb gives, whoever
shares memory with whom. Nothing is written in place, so the values of a valid program cannot depend
on the order in which a backend works. Memory is shared only if the protocol allows it: by `split`,
`flatten` and functions that return their arguments.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np

from backends.arrays import tree_map
from backends.base import BaseBackend
from backends.devices import Device
from backends.numpy import ops as numpy_ops
from backends.protocol import Array

Failure = Literal["", "computation", "request", "either", "device", "perhaps", "may"]
"""How a statement fails: its computation does; the request is refused at the call; either of them;
it is refused by a backend that knows devices, as each does that has queues; it may be refused; it
may be refused, and its computation may fail, for which it waits. Or not at all.
"""

FUNCTIONS = {
    "data": '''\
def data(shape, dtype, k):
    """Make an array of small whole numbers."""
    return (np.arange(np.prod(shape, dtype=int)) * k % 7 - 2).astype(dtype).reshape(shape)
''',
    "late": '''\
def late(x, m):
    """Return a copy of x, a few milliseconds later: m is a matrix of 300 rows and columns."""
    return ops.add(x, ops.multiply(ops.total(ops.matmul(ops.matmul(ops.matmul(m, m), m), m)), 0.0))
''',
    "fail": """
def fail(error):
    raise error
""",
    "Untold": """\
class Untold(Exception):
    def __str__(self):
        raise ValueError("no message")
""",
}
"""Functions and classes that programs use, by name."""

IMPORTS = """\
from threading import Thread

import numpy as np

from backends import Device, load"""


def namespace_for(backend: Any) -> dict[str, Any]:
    """Return the names that statements find, with their values, on a backend."""
    namespace = {
        "np": np,
        "Device": Device,
        "backend": backend,
        "ops": backend.ops,
        "devices": backend.devices,
    }
    for text in FUNCTIONS.values():
        exec(text, namespace)
    return namespace


@final
@dataclass(frozen=True)
class Statement:
    """A line of a program, with the names that it defines and uses."""

    source: str
    defines: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    device: int | None = None
    """That of the value that it makes, if that is one."""
    fails: Failure = ""
    stand_in: str = ""
    """What the reference does in the place of a statement that fails, to know the shapes of what
    depends on it.
    """
    waits: bool = False
    """Whether it waits for all that it uses, and so raises if computing that failed."""

    thread: int = 0
    """The Python thread that runs it, if there are several."""

    @property
    def for_reference(self) -> str:
        """Return the source that the reference runs."""
        return self.stand_in or self.source


@final
@dataclass(frozen=True)
class Program:
    """A program: statements over a backend, and the number of its devices."""

    devices: int
    statements: tuple[Statement, ...]

    def without(self, positions: Iterable[int]) -> "Program":
        """Leave out the statements at these positions, and those that depend on them."""
        left_out = set(positions)
        missing: set[str] = set()
        kept = []
        for position, statement in enumerate(self.statements):
            if position in left_out or missing & set(statement.uses):
                missing |= set(statement.defines)
            else:
                kept.append(statement)
        return replace(self, statements=tuple(kept))

    def threads(self) -> list[list[int]]:
        """List the positions of each Python thread's statements."""
        positions: dict[int, list[int]] = {}
        for position, statement in enumerate(self.statements):
            positions.setdefault(statement.thread, []).append(position)
        return list(positions.values())

    def text(self, loading: str) -> str:
        """Write the program as Python; `loading` makes the backend."""
        body = "\n".join(self._body())
        # Only those functions of ours that the statements call.
        words = set(re.findall(r"\w+", body))
        functions = [f"\n{text}" for name, text in FUNCTIONS.items() if name in words]
        making = f"\nbackend = {loading}\nops, devices = backend.ops, backend.devices"
        return "\n".join((IMPORTS, making, *functions, f"\n{body}\n"))

    def _body(self) -> Iterator[str]:
        """Iterate over the lines of the statements, in a function for each of several threads."""
        threads = self.threads()
        if len(threads) == 1:
            yield from (statement.source for statement in self.statements)
            return
        for number, positions in enumerate(threads):
            yield f"def thread{number}():"
            yield from (f"    {self.statements[position].source}" for position in positions)
            yield ""
        constructors = [f"Thread(target=thread{number})" for number in range(len(threads))]
        yield f"threads = [{', '.join(constructors)}]"
        yield "for thread in threads:"
        yield "    thread.start()"
        yield "for thread in threads:"
        yield "    thread.join()"


@final
class Reference(BaseBackend):
    """A backend that never writes to what it was given."""

    name = "reference"

    def __init__(self, devices: int) -> None:
        self.devices = tuple(Device("cpu", number) for number in range(1, devices + 1))
        self.ops: Any = numpy_ops

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        with np.errstate(all="ignore"):
            return fn(*args)

    def wait(self, x: Array) -> Array:
        return x

    def waitall(self) -> None:
        pass

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:  # noqa: ARG002
        return _copy(x)

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        def sum_of(*terms: np.ndarray) -> np.ndarray:
            return np.sum(terms, axis=0, dtype=terms[0].dtype)

        total = tree_map(sum_of, *xs)
        return tuple(_copy(total) for _ in xs)

    def asarray(self, x: Array, device: Device) -> Array:  # noqa: ARG002
        return _copy(x)

    def to_numpy(self, x: Array) -> Any:
        return _copy(x)


def reference_namespace(devices: int) -> dict[str, Any]:
    """Return the names that statements find on the reference with these devices."""
    return namespace_for(Reference(devices)) | {"late": _at_once}


def _at_once(x: Array, m: Array) -> Array:  # noqa: ARG001
    """Return a copy of `x`: `late` for the reference, which has no need to be slow."""
    return x.copy()


def _copy(x: Array) -> Array:
    """Return a copy of an array, or of all arrays of a tuple, that lies row by row."""
    return tree_map(lambda leaf: np.array(leaf, order="C"), x)
