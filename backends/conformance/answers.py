"""Values on their way from the process of a backend, as JSON; arrays are their bytes."""

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

    The value is an array, a tuple, a list, a number or a text. Another object loses its content,
    and so does an array of such objects.
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
        content = b64encode(value.tobytes()).decode() if is_numeric else None
        return {"dtype": value.dtype.str, "shape": list(value.shape), "content": content}
    return {"type": type(value).__name__}


def decoded(read: Any) -> Any:
    """Return the value that was encoded."""
    match read:
        case list():
            return [decoded(item) for item in read]
        case {"tuple": items}:
            return tuple(decoded(item) for item in items)
        case {"dtype": dtype, "shape": shape, "content": None}:
            return np.empty(shape, dtype)
        case {"dtype": dtype, "shape": shape, "content": content}:
            return np.frombuffer(b64decode(content), dtype).reshape(shape)
        case {"type": type_name}:
            return Unreadable(type_name)
    return read
