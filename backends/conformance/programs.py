"""What a program is: statements of Python over the protocol's verbs, each of which gives names to what it makes.

A program is text, so that what is run is what is printed: a person can paste it into a file and run it. Every name is
given once, and each statement says which names it uses, so that statements can be left out when a program is shrunk.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, final

__all__ = ["HELPERS", "Failure", "Program", "Statement"]

Failure = Literal["", "computation", "request", "either", "device", "perhaps"]
"""How a statement fails: its computation does; the request is refused at the call; either of them; it is refused by a
backend that knows devices, as each does that has queues; it may be refused. Or not at all."""

HELPERS = {
    "data": '''
def data(shape, dtype, k):
    """Make an array of small whole numbers."""
    return (np.arange(np.prod(shape, dtype=int)) * k % 7 - 2).astype(dtype).reshape(shape)
''',
    "late": '''
def late(x, m):
    """Return a copy of x, a few milliseconds later: m is a matrix of 300 rows and columns."""
    return ops.add(x, ops.multiply(ops.total(ops.matmul(ops.matmul(ops.matmul(m, m), m), m)), 0.0))
''',
    "fail": """
def fail(error):
    raise error
""",
}
"""Functions that programs use, by name."""


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

    @property
    def for_reference(self) -> str:
        return self.stand_in or self.source


@final
@dataclass(frozen=True)
class Program:
    """Statements over a backend of so many devices; the last one waits for everything."""

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

    def text(self, loading: str, remarks: dict[int, str] | None = None) -> str:
        """Write the program as Python; `loading` makes the backend, and a remark stands behind its statement."""
        lines = [
            statement.source + (f"  # {remark}" if (remark := (remarks or {}).get(place)) else "")
            for place, statement in enumerate(self.statements)
        ]
        body = "\n".join(lines)
        imports = ["import numpy as np\n"] if "np." in body or "data(" in body else []
        names = "Device, load" if "Device(" in body else "load"
        helpers = [text for name, text in HELPERS.items() if f"{name}(" in body or f"({name}," in body]
        return "".join(
            [
                *imports,
                f"from backends import {names}\n\n",
                f"backend = {loading}\n",
                "ops, devices = backend.ops, backend.devices\n",
                *(f"\n{helper}\n" for helper in helpers),
                f"\n{body}\n",
            ]
        )
