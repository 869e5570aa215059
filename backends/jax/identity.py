"""What a function or a value is: equal for two of them if programs that hold them are.

What is compared by value, and what by identity, is said in `compiling.py`.
"""

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any, final

import numpy as np

from backends.jax import ops

__all__ = ["identity"]

PLAIN = (int, str, bytes, bool, type(None), type(Ellipsis))


@final
class _Same:
    """An object that is only equal to itself."""

    __slots__ = ("_it",)

    def __init__(self, it: object) -> None:
        self._it = it

    def __hash__(self) -> int:
        return id(self._it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._it is other._it


def identity(x: Any, within: tuple[Any, ...] = ()) -> Hashable:
    """Return what is equal for two objects if and only if programs that hold them are."""
    kind = type(x)
    if kind in PLAIN:
        return kind, x
    if kind is FunctionType:
        return _of_function(x, within)
    if kind is float:
        return kind, x.hex()
    if isinstance(x, partial):
        return kind, *(identity(part, within) for part in (x.func, x.args, x.keywords))
    if kind is MethodType:
        return kind, identity(x.__func__, within), identity(x.__self__, within)
    if isinstance(x, tuple | list):
        return kind, *(identity(item, within) for item in x)
    if kind is dict:
        return kind, *((identity(key, within), identity(value, within)) for key, value in x.items())
    if isinstance(x, np.ndarray | np.generic):
        return kind, x.dtype.str, x.shape, x.tobytes()
    if is_dataclass(x) and not isinstance(x, type):
        return kind, *(identity(getattr(x, one.name), within) for one in fields(x))
    return _Same(x)


def _of_function(fn: FunctionType, within: tuple[Any, ...]) -> Hashable:
    if fn.__module__ == ops.__name__ and fn.__name__ == fn.__qualname__:
        # The ops depend on nothing but their arguments.
        return fn
    if fn in within:
        # It calls itself.
        return within.index(fn)
    within = (*within, fn)
    names = fn.__globals__
    held = [
        fn.__defaults__,
        fn.__kwdefaults__,
        tuple(cell.cell_contents for cell in fn.__closure__ or ()),
        tuple(names[name] for name in _names(fn.__code__) if name in names),
    ]
    return fn.__code__, identity(held, within)


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    """List the names that a function uses beside its own, those of functions in it too."""
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))
