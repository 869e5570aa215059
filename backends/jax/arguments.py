"""Arguments of a launch: a program's inputs, and all else, which is part of the program.

`compiling.py` says what is compared by value there, and what by identity.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any, final

import jax
import numpy as np

from backends.arrays import rebuilt

PLAIN = (int, str, bytes, bool, type(None), type(Ellipsis))
OPS = "backends.jax.ops"
INPUTS = (jax.Array, float, np.floating)
"""The types of a program's inputs, unless the function decides on a fraction's value."""
INPUT = object()
"""A mark where an input stood."""


@final
class Fixed:
    """A part of a program, equal to another one if programs that hold them are."""

    __slots__ = ("identity", "value")

    def __init__(self, value: Any) -> None:
        self.identity, self.value = _identity(value), value

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self.identity == other.identity


def spec_of(x: Any, inputs: list[Any], kinds: tuple[Any, ...]) -> Any:
    """Append the inputs in an argument to `inputs`, and return its spec: the argument without them.

    `kinds` are the types of inputs.
    """
    if isinstance(x, kinds):
        # NumPy's own numbers have a dtype that may win over the arrays'.
        inputs.append(x if isinstance(x, jax.Array) else float(x))
        return INPUT
    if isinstance(x, tuple | list):
        return (type(x), *(spec_of(item, inputs, kinds) for item in x))
    return Fixed(x)


def filled(spec: Any, inputs: Iterator[Any]) -> Any:
    """Return the argument of a spec, with the next of these inputs wherever an input stood."""
    if spec is INPUT:
        return next(inputs)
    if isinstance(spec, Fixed):
        return spec.value
    kind, *items = spec
    return rebuilt(kind, (filled(item, inputs) for item in items))


@final
class ByIdentity:
    """An object that equals nothing but itself.

    It stays in memory, so that no other gets its identity.
    """

    __slots__ = ("object",)

    def __init__(self, x: object) -> None:
        self.object = x

    def __hash__(self) -> int:
        return id(self.object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.object is other.object


def _identity(x: Any, within: tuple[FunctionType, ...] = ()) -> Hashable:
    """Return a value that is equal for two objects if and only if programs that hold them are.

    `within` are the functions that hold the object, the outermost first.
    """
    kind = type(x)
    if kind in PLAIN:
        return kind, x
    if kind is float:
        # As text, because as numbers 0.0 and -0.0 are equal, and NaN is unequal to itself.
        return kind, x.hex()
    if isinstance(x, np.ndarray | np.generic):
        return kind, x.dtype.str, x.shape, x.tobytes()
    if kind is FunctionType:
        return _of_function(x, within)
    parts = _parts_of(x)
    if parts is None:
        return ByIdentity(x)
    return kind, *(_identity(part, within) for part in parts)


def _parts_of(x: Any) -> Iterable[Any] | None:
    """Return the parts by which an object is compared; None if it is compared as a whole."""
    kind = type(x)
    if isinstance(x, partial):
        return x.func, x.args, x.keywords
    if kind is MethodType:
        return x.__func__, x.__self__
    if isinstance(x, tuple | list):
        return x
    if kind is dict:
        return x.items()
    if is_dataclass(x) and not isinstance(x, type):
        return [getattr(x, field.name) for field in fields(x)]
    return None


def _of_function(fn: FunctionType, within: tuple[FunctionType, ...]) -> Hashable:
    """Return the identity of a function: its code, and all that it refers to."""
    if fn.__module__ == OPS and fn.__name__ == fn.__qualname__:
        # The ops depend on nothing but their arguments.
        return fn
    if fn in within:
        # The function calls itself.
        return within.index(fn)
    module = fn.__globals__
    enclosed_values = tuple(cell.cell_contents for cell in fn.__closure__ or ())
    used_names = [name for name in _names(fn.__code__) if name in module]
    global_values = tuple(module[name] for name in used_names)
    references = [fn.__defaults__, fn.__kwdefaults__, enclosed_values, global_values]
    return fn.__code__, _identity(references, (*within, fn))


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    """Return the names that a function and the functions in it use, other than local ones."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _names(constant)
    return tuple(dict.fromkeys(names))
