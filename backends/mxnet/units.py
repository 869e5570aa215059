"""A function of operators as one unit: one call from Python, and one entry of a device's queue.

MXNet records what the function does, and makes a `CachedOp` of it with memory planned once and all operators in bulk:
2,000 increments of two numbers take a fiftieth of their time one by one. Importing this module imports mxnet.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mxnet as mx
from mxnet import autograd

from backends.arrays import tree_leaves, tree_map

STATIC = (("static_alloc", True), ("static_shape", True))
"""Flags of a CachedOp: without them each operator would be pushed by itself."""


def unit_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as one unit, which is made for each kind of arguments when they first come."""
    units: dict[object, Callable[..., Any]] = {}

    def unit(*args: Any) -> Any:
        kind = tree_map(lambda x: (x.shape, str(x.dtype), x.ctx), args)
        if kind not in units:
            units[kind] = _recorded(fn, args) or fn
        return units[kind](*args)

    return unit


def _recorded(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Record what the function does with arguments of this kind, and return a unit of it; None if there is none."""
    # Other names of the same memory, one for each argument, also if an array is passed twice.
    leaves = tree_map(lambda x: x.detach(), args)
    variables = list(tree_leaves(leaves))
    autograd.mark_variables(variables, [x.detach() for x in variables])
    try:
        with autograd.record(train_mode=False):
            value = fn(*leaves)
        results = list(tree_leaves(value))
        symbol = mx.sym.Group([autograd.get_symbol(x) for x in results]).as_np_ndarray()
    except Exception:
        # An update refuses to be recorded, and what was not recorded has no symbol. A mistake comes up again without.
        return None
    places = {autograd.get_symbol(x).name: place for place, x in enumerate(variables)}
    inputs = symbol.list_inputs()
    on_one_device = len({x.ctx for x in (*variables, *results)}) == 1
    if not on_one_device or not places.keys() >= set(inputs) or _repeated((*variables, *results)):
        return None
    # By default 15 operators are one entry of the queue; a larger number than there are takes memory.
    operator = mx.nd.CachedOp(symbol, (*STATIC, ("forward_bulk_size", len(symbol.get_internals().list_outputs()))))
    order, nesting = [places[name] for name in inputs], tree_map(lambda _: None, value)

    def unit(*args: Any) -> Any:
        given = list(tree_leaves(args))
        computed = operator(*(given[place] for place in order))
        parts = iter([computed] if len(results) == 1 else computed)
        return tree_map(lambda _: next(parts), nesting)

    return unit


def _repeated(arrays: Sequence[Any]) -> bool:
    return len({id(x) for x in arrays}) < len(arrays)
