"""Reverse-mode differentiation in one page: a tracked value remembers what it was computed from, and how to go back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, final

import numpy as np

__all__ = ["Tracked", "Vjp", "differentiable", "gradients_of"]

Vjp = Callable[[np.ndarray], np.ndarray]
"""A vector-Jacobian product: from the gradient by a function's result to the gradient by one of its arguments."""


@final
@dataclass(slots=True, eq=False)
class Tracked:
    """A NumPy value with its parents, each with the Vjp that leads to it; without parents, gradients stop there."""

    value: np.ndarray
    parents: tuple[tuple["Tracked", Vjp], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape


def differentiable(fn: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """Let a function of arrays that returns (result, Vjp by each argument …) take tracked values too."""

    @wraps(fn)
    def call(*args: Any) -> Any:
        result, *vjps = fn(*(arg.value if isinstance(arg, Tracked) else arg for arg in args))
        result = np.asarray(result)
        parents = tuple((arg, vjp) for arg, vjp in zip(args, vjps, strict=False) if isinstance(arg, Tracked))
        return Tracked(result, parents) if parents else result

    return call


def gradients_of(value: Tracked, by: tuple[Tracked, ...]) -> tuple[np.ndarray, ...]:
    """Differentiate one number by tracked values; zeros by those that it does not depend on."""
    order: list[Tracked] = []
    visited: set[int] = set()

    def visit(node: Tracked) -> None:
        if id(node) not in visited:
            visited.add(id(node))
            for parent, _ in node.parents:
                visit(parent)
            order.append(node)

    visit(value)
    gradients: dict[int, np.ndarray] = {id(value): np.ones_like(value.value)}
    for node in reversed(order):
        for parent, vjp in node.parents:
            step = vjp(gradients[id(node)])
            known = gradients.get(id(parent))
            gradients[id(parent)] = step if known is None else known + step
    return tuple(gradients.get(id(node), np.zeros_like(node.value)) for node in by)
