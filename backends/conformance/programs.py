"""What a program is: statements of Python over the protocol's verbs, each of which gives names to what it makes.

A program is text, so that what is run is what is printed: a person can paste it into a file and run it. Every name is
given once, and each statement says which names it uses, so that statements can be left out when a program is shrunk.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, final

import numpy as np

from backends.devices import Device

Failure = Literal["", "computation", "request", "either", "device", "perhaps", "may"]
"""How a statement fails: its computation does; the request is refused at the call; either of them; it is refused by a
backend that knows devices, as each does that has queues; it may be refused; it may be refused, and its computation may
fail, for which it waits. Or not at all."""

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


def namespace_for(backend: Any) -> dict[str, Any]:
    """Return the names that statements find."""
    namespace = {"np": np, "Device": Device, "backend": backend, "ops": backend.ops, "devices": backend.devices}
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
    """What the reference does in the place of a statement that fails, to know the shapes of what depends on it."""
    waits: bool = False
    """Whether it waits for all that it uses, and so raises if computing that failed."""

    thread: int = 0
    """The Python thread that runs it, if there are several."""

    @property
    def for_reference(self) -> str:
        return self.stand_in or self.source


@final
@dataclass(frozen=True)
class Program:
    """Statements over a backend of so many devices."""

    devices: int
    statements: tuple[Statement, ...]

    def without(self, places: Iterable[int]) -> "Program":
        """Leave out the statements at these places, and those that depend on them."""
        left_out = set(places)
        missing: set[str] = set()
        kept = []
        for place, statement in enumerate(self.statements):
            if place in left_out or missing & set(statement.uses):
                missing |= set(statement.defines)
            else:
                kept.append(statement)
        return replace(self, statements=tuple(kept))

    def threads(self) -> list[list[int]]:
        """List the places of each Python thread's statements."""
        places: dict[int, list[int]] = {}
        for place, statement in enumerate(self.statements):
            places.setdefault(statement.thread, []).append(place)
        return list(places.values())

    def text(self, loading: str, remarks: Mapping[int, str] = MappingProxyType({})) -> str:
        """Write the program as Python; `loading` makes the backend, and a remark stands behind its statement."""
        body = "\n".join(self._body(remarks))
        functions = [text for name, text in FUNCTIONS.items() if re.search(rf"\b{name}\b", body)]
        names = [name for name in ("Device", "load") if re.search(rf"(?<![.\w]){name}\(", body + "\n" + loading)]
        imports: dict[str, object] = {
            "import numpy as np": "np." in body or functions,
            "from threading import Thread": "Thread" in body,
            f"from backends import {', '.join(names)}": names,
        }
        return "\n".join(
            [
                *(line for line, needed in imports.items() if needed),
                "",
                f"backend = {loading}",
                "ops, devices = backend.ops, backend.devices",
                *(f"\n{text}" for text in functions),
                "",
                f"{body}\n",
            ]
        )

    def _body(self, remarks: Mapping[int, str]) -> Iterator[str]:
        lines = [
            f"{statement.source}  # {remarks[place]}" if place in remarks else statement.source
            for place, statement in enumerate(self.statements)
        ]
        threads = self.threads()
        if len(threads) == 1:
            yield from lines
            return
        for number, places in enumerate(threads):
            yield f"def thread{number}():"
            yield from (f"    {lines[place]}" for place in places)
            yield ""
        yield f"threads = [{', '.join(f'Thread(target=thread{number})' for number in range(len(threads)))}]"
        yield from ("for thread in threads:", "    thread.start()", "for thread in threads:", "    thread.join()")
