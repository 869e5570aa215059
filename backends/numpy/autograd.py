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
    """Let a function of arrays take tracked values and any numbers.

    `fn` returns a tuple: its result, and the Vjp by each argument.
    """

    @wraps(fn)
    def call(*args: Any) -> Any:
        """Apply `fn` to the values behind its arguments, and track the result if one is tracked."""
        values = [arg.value if isinstance(arg, Tracked) else arg for arg in args]
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        float_dtypes = {array.dtype for array in arrays if array.dtype.kind == "f"}
        if len(float_dtypes) > 1:
            names = sorted(map(str, float_dtypes))
            raise ValueError(f"operands need one dtype, not {' and '.join(names)}")
        # NumPy's own numbers have a dtype that may win over the arrays', Python's have none.
        operands = [value.item() if isinstance(value, np.generic) else value for value in values]
        result, *vjps = fn(*operands)
        # NumPy turns a result of no dimensions into a number, and may turn it into float64.
        dtype = next(iter(float_dtypes), None)
        result = np.asarray(result, dtype)
        # Arguments without a Vjp, such as labels, come last.
        parents = tuple(
            (arg, vjp) for arg, vjp in zip(args, vjps, strict=False) if isinstance(arg, Tracked)
        )
        return Tracked(result, parents) if parents else result

    return call


def gradients_of(value: Tracked, by: tuple[Tracked, ...]) -> tuple[np.ndarray, ...]:
    """Return the gradients of one number by each of some tracked values, in new arrays.

    The gradient by a value that the number does not depend on is zero.
    """
    reached: set[Tracked] = set()
    pending = [value]
    while pending:
        node = pending.pop()
        if node not in reached:
            reached.add(node)
            pending.extend(parent for parent, _ in node.parents)
    gradients: dict[Tracked, np.ndarray] = {value: np.ones_like(value.value)}
    # A value comes before all that it was computed from, so its own gradient is complete by then.
    for node in sorted(reached, key=attrgetter("number"), reverse=True):
        for parent, vjp in node.parents:
            contribution = vjp(gradients[node])
            if parent in gradients:
                gradients[parent] = gradients[parent] + contribution
            else:
                gradients[parent] = contribution
    copies = []
    for node in by:
        gradient = gradients.get(node, np.zeros_like(node.value))
        # A Vjp may return its argument, a view of it, or one number in the place of many.
        copies.append(np.array(gradient, node.value.dtype, order="C"))
    return tuple(copies)
