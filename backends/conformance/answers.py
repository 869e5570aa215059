"""Values on their way from a process that is not trusted: JSON, in which arrays are their bytes.

Whoever reads them runs nothing, as a pickle would.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, final

import numpy as np

NUMBERS = "biufc"
"""The kinds of dtypes whose bytes are the numbers themselves."""


@final
@dataclass(frozen=True, repr=False)
class Unreadable:
    """An object that is no value: only the name of its type is known."""

    type_name: str

    def __repr__(self) -> str:
        return f"a {self.type_name}"


def encoded(value: Any) -> Any:
    """Return a form of a value that JSON can hold.

    The value is an array, a tuple, a list, a number or a text; another object loses its content.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 0:
        # NumPy makes such an array of an object that is no array, such as None.
        return encoded(value.item())
    if isinstance(value, np.ndarray):
        is_numeric = value.dtype.kind in NUMBERS
        content = b64encode(value.tobytes()).decode() if is_numeric else ""
        return {"dtype": value.dtype.str, "shape": list(value.shape), "content": content}
    return {"type": type(value).__name__}


def decoded(read: Any) -> Any:
    """Return the value that was encoded; raises ValueError for a form that `encoded` never returns.

    An array of objects other than numbers keeps its shape, and has no content.
    """
    match read:
        case None | bool() | int() | float() | str():
            return read
        case list():
            return [decoded(item) for item in read]
        case {"tuple": list(items)}:
            return tuple(decoded(item) for item in items)
        case {"dtype": str(dtype), "shape": list(shape), "content": str(content)}:
            return _array(dtype, shape, content)
        case {"type": str(name)}:
            return Unreadable(name)
    raise ValueError("not an encoded value")


def _array(dtype_name: str, shape: list[Any], content: str) -> np.ndarray:
    """Return the array that was encoded; raises ValueError if nothing else can be read."""
    try:
        dtype = np.dtype(dtype_name)
        if dtype.kind in NUMBERS:
            return np.frombuffer(b64decode(content), dtype).reshape(shape)
        # It takes no memory, whatever its shape is.
        return np.broadcast_to(np.empty((), object), shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not an encoded array: {error}") from error
