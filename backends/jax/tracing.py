"""What is known while a launched function is traced: the checks that its program makes, and whether it is one unit."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import jax
from jax import lax

__all__ = ["KEEPING_BARRIERS", "Check", "collecting_checks", "fail_if", "one_by_one", "traced_in_unit"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Check:
    """Whether a program has failed, which the device computes beside its result, and what is wrong then."""

    failed: Any
    message: str = field(metadata={"static": True})


@final
class _Trace(threading.local):
    checks: list[Check] | None = None
    is_unit = False
    last: Any = None
    """The last result in a unit."""


_trace = _Trace()


@contextmanager
def collecting_checks() -> Iterator[list[Check]]:
    """Collect the checks of what is traced within the context, which is no part of a unit around it."""
    outer = _trace.checks, _trace.is_unit
    _trace.checks, _trace.is_unit = [], False
    try:
        yield _trace.checks
    finally:
        _trace.checks, _trace.is_unit = outer


def fail_if(failed: Any, message: str) -> None:
    """Let the program that is being traced fail if `failed` turns out to be true."""
    if _trace.checks is not None:
        _trace.checks.append(Check(failed, message))


KEEPING_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""Options with which a unit is compiled: on CPUs XLA drops barriers before it merges operations."""


def one_by_one(fn: Callable[..., Any], *args: Any) -> Any:
    """Trace a function so that XLA neither merges its operations, nor leaves out those that it has seen before."""
    outer = _trace.is_unit, _trace.last
    _trace.is_unit, _trace.last = True, None
    try:
        return fn(*args)
    finally:
        _trace.is_unit, _trace.last = outer


def traced_in_unit(op: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Trace an operation; in a unit, behind a barrier, and so that no other one has the same operands."""
    if not _trace.is_unit:
        return op(*operands)
    arrays = [x for x in operands if isinstance(x, jax.Array)]
    before = [] if _trace.last is None else [_trace.last]
    tied = iter(lax.optimization_barrier((*arrays, *before)))
    _trace.last = op(*(next(tied) if isinstance(x, jax.Array) else x for x in operands))
    return _trace.last
