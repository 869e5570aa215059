"""Reverse-mode differentiation in one page: a tracked value remembers what it was computed from,
and how to go back.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from operator import attrgetter
from typing import Any, final

import numpy as np

Vjp = Callable[[np.ndarray], np.ndarray]
"""A vector-Jacobian product: from the gradient by a function's result to the gradient by one of its
arguments.
"""


@final
@dataclass(slots=True, eq=False)
class Tracked:
    """A NumPy value with its parents, each with the Vjp that leads to it.

    Without parents, gradients stop there.
    """

    value: np.ndarray
    parents: tuple[tuple["Tracked", Vjp], ...] = ()
    number: int = field(default_factory=count().__next__)
    """A value has a larger number than all that it was computed from."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape


def differentiable(fn: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """Let a function of arrays that returns (result, Vjp by each argument …) take tracked values
    and any numbers.
    """

    @wraps(fn)
    def call(*args: Any) -> Any:
        values = [arg.value if isinstance(arg, Tracked) else arg for arg in args]
        floats = {
            value.dtype
            for value in values
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        }
        if len(floats) > 1:
            raise ValueError(
                f"operands need one dtype, not {' and '.join(sorted(map(str, floats)))}"
            )
        # NumPy's own numbers have a dtype that may win over the arrays', Python's have none.
        result, *vjps = fn(
            *(value.item() if isinstance(value, np.generic) else value for value in values)
        )
        # Beside a number, an array of no dimensions becomes float64, and every result of none a
        # number.
        result = np.asarray(result, *floats)
        parents = tuple(
            (arg, vjp) for arg, vjp in zip(args, vjps, strict=False) if isinstance(arg, Tracked)
        )
        return Tracked(result, parents) if parents else result

    return call


def gradients_of(value: Tracked, by: tuple[Tracked, ...]) -> tuple[np.ndarray, ...]:
    """Differentiate one number by tracked values, to new arrays.

    They are zeros by those it does not depend on.
    """
    reached: set[Tracked] = set()
    pending = [value]
    while pending:
        node = pending.pop()
        if node not in reached:
            reached.add(node)
            pending.extend(parent for parent, _ in node.parents)
    gradients: dict[Tracked, np.ndarray] = {value: np.ones_like(value.value)}
    for node in sorted(reached, key=attrgetter("number"), reverse=True):
        for parent, vjp in node.parents:
            step = vjp(gradients[node])
            gradients[parent] = gradients[parent] + step if parent in gradients else step
    # Copied, because a Vjp may return its argument, a view of it, or one number in the place of
    # many.
    return tuple(
        np.array(gradients.get(node, np.zeros_like(node.value)), node.value.dtype, order="C")
        for node in by
    )
