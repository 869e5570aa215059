"""Compiles what is launched: once for each function, and for each shape and dtype of its arguments.

A program holds what its function did when it was traced, and is found again by what the function
is: its code, and what its closure, its defaults and the global names that it uses hold. So a lambda
that a loop makes anew is compiled once; a number that it captures, and that has changed, makes
another program. The rule for what is launched:

- Arrays and fractions (`float`) among the arguments are a program's inputs. Whole numbers,
  functions and all else are part of it, and so is a fraction on whose value the function decides:
  another value, another program.
- What is captured is compared by value if it is a number, a string, a function, an array of NumPy,
  or a tuple, list, dict or dataclass of such; an array of JAX and any other object are compared by
  identity, and must not change.
- A function is called when it is compiled, and not when it is launched again: it must do nothing
  but compute.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from importlib.util import find_spec
from time import perf_counter
from typing import Any, final

import jax
from jax import lax, monitoring

from backends.arrays import tree_leaves
from backends.devices import Device
from backends.host import tell_compiling
from backends.jax.arguments import INPUTS, Fixed, filled, spec_of
from backends.jax.profiler import program_name
from backends.profiling.marks import function_name

MOST_PROGRAMS = 1024
"""Functions that are kept compiled; the one that was not launched for the longest time is
dropped.
"""
WORTH_KEEPING = 0.05
"""Seconds of compiling from which a program is kept on disk."""


COMPILING = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
"""JAX's events of a program that is new: it is written down for XLA, and XLA compiles it."""
LAST_OF_COMPILING = COMPILING[-1]
COMPILED_SOONER: Mapping[str, bool | int | str] = {
    # Emitters that go through MLIR take half of the time to compile LeNet's gradient, which is as
    # fast without.
    **({"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11, 1) else {}),
    # Parts that are compiled in parallel repeat work, and a device's programs compile on few cores
    # anyway.
    "xla_cpu_parallel_codegen_split_count": 1,
}

KEEPING_BARRIERS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""Options with which a unit is compiled: on CPUs XLA drops barriers before it merges operations."""


@final
class Compiled:
    """Counts of programs that were compiled, or read from where they are kept, and seconds."""

    programs = 0
    seconds = 0.0


compiled = Compiled()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Check:
    """A check that the device computes beside a result: whether the program failed, and why."""

    failed: Any
    message: str = field(metadata={"static": True})


@final
class _Thread(threading.local):
    compiled = False
    """Whether this thread's launch made a program."""
    is_timed = False
    """Whether this thread's launch is timed as a whole."""
    checks: list[Check] | None = None
    """Those of what is being traced."""
    is_unit = False
    last: Any = None
    """The last result in a unit."""


_thread = _Thread()


@contextmanager
def collecting_checks() -> Iterator[list[Check]]:
    """Collect the checks of operations that are traced within a `with` block.

    The operations are no part of a unit around the block.
    """
    checks_before, is_unit_before = _thread.checks, _thread.is_unit
    _thread.checks, _thread.is_unit = [], False
    try:
        yield _thread.checks
    finally:
        _thread.checks, _thread.is_unit = checks_before, is_unit_before


def fail_if(failed: Any, message: str) -> None:
    """Let the program that is being traced fail if `failed` turns out to be true."""
    if _thread.checks is not None:
        _thread.checks.append(Check(failed, message))


def one_by_one(fn: Callable[..., Any], *args: Any) -> Any:
    """Trace a function so that XLA does all of its operations, and each by itself.

    XLA would merge operations, and leave out those that it has seen before.
    """
    is_unit_before, last_before = _thread.is_unit, _thread.last
    _thread.is_unit, _thread.last = True, None
    try:
        return fn(*args)
    finally:
        _thread.is_unit, _thread.last = is_unit_before, last_before


def kept_in_units(op: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return an operation that is traced behind a barrier if it is part of a unit.

    The barrier gives it operands that no other operation has. Without barriers, XLA would make one
    kernel of several operations.
    """

    @wraps(op)
    def call(*operands: Any) -> jax.Array:
        """Apply the operation, behind a barrier if a unit is being traced."""
        if not _thread.is_unit:
            return op(*operands)
        arrays = [x for x in operands if isinstance(x, jax.Array)]
        # The barrier ties the operands to the result of the operation before.
        results_before = [] if _thread.last is None else [_thread.last]
        tied_arrays = iter(lax.optimization_barrier((*arrays, *results_before)))
        tied_operands = [next(tied_arrays) if isinstance(x, jax.Array) else x for x in operands]
        _thread.last = op(*tied_operands)
        return _thread.last

    return call


def keep_programs() -> None:
    """Let JAX keep programs that took long to compile on disk, for this user's other processes.

    Nothing changes if the user has said where JAX keeps programs, or that it keeps none.
    """
    if jax.config.jax_compilation_cache_dir is not None or find_spec("platformdirs") is None:
        return
    from platformdirs import user_cache_path

    folder = user_cache_path("parallel-core") / "xla"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)


def _count(event: str, seconds: float, **_: Any) -> None:
    """Add the seconds of an event of compiling; JAX calls this for every event."""
    # Tracing has another event, which nested functions report again.
    if event not in COMPILING:
        return
    compiled.seconds += seconds
    if event == LAST_OF_COMPILING:
        compiled.programs += 1
    _thread.compiled = True
    if not _thread.is_timed:
        tell_compiling(seconds)


monitoring.register_event_duration_secs_listener(_count)


def run(device: Device, fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Check]]:
    """Enqueue a function as one program, and return the program's result and checks.

    The program is compiled if it is new.
    """
    started = perf_counter()
    _thread.compiled, _thread.is_timed = False, True
    try:
        return _enqueue(device, Fixed(fn), args)
    finally:
        _thread.is_timed = False
        if _thread.compiled:
            # The whole time: JAX reports the time of tracing, too, only in nested parts.
            tell_compiling(perf_counter() - started)


def _enqueue(device: Device, launched: Fixed, args: Sequence[Any]) -> Any:
    """Enqueue a function's program, and return its result and its checks."""
    inputs: list[Any] = []
    specs = tuple(spec_of(arg, inputs, INPUTS) for arg in args)
    program = _program(device, launched, specs)
    if not program.needs_numbers:
        try:
            return program.run(*inputs)
        except jax.errors.ConcretizationTypeError:
            # The function decides on a fraction's value, or it is wrong: then it fails again.
            program.needs_numbers = True
    # Here fractions are no inputs, but parts of the program.
    arrays: list[Any] = []
    specs_with_numbers = tuple(spec_of(arg, arrays, (jax.Array,)) for arg in args)
    return _program(device, launched, specs_with_numbers).run(*arrays)


def _check_returned(result: Any) -> None:
    """Raise TypeError unless a launched function returned a value."""
    for leaf in tree_leaves(result):
        # To JAX, None and a dict are trees of arrays, as a tuple is.
        if not jax.tree_util.all_leaves([leaf]):
            raise TypeError(f"a value is an array, or a tuple of values, not {type(leaf).__name__}")


@lru_cache(MOST_PROGRAMS)
def _program(device: Device, launched: Fixed, specs: tuple[Hashable, ...]) -> "Program":
    """Return the program of a function for specs of arguments, which is made if it is new."""
    # XLA compiles for each device anyway.
    return Program(device, launched, specs)


def is_unit(fn: Callable[..., Any]) -> bool:
    """Return whether a function is one that `ops.as_unit` made."""
    return isinstance(fn, partial) and fn.func is one_by_one


@final
class Program:
    """A program: what a function launches with arguments of some form."""

    def __init__(self, device: Device, launched: Fixed, specs: tuple[Any, ...]) -> None:
        fn: Callable[..., Any] = launched.value
        self.needs_numbers = False

        def traced(*inputs: Any) -> tuple[Any, list[Check]]:
            """Return the result for some inputs, and the checks, while JAX traces it."""
            remaining_inputs = iter(inputs)
            args = [filled(spec, remaining_inputs) for spec in specs]
            with collecting_checks() as checks:
                result = fn(*args)
            _check_returned(result)
            return result, checks

        traced.__name__ = traced.__qualname__ = program_name(function_name(fn), device)
        options: dict[str, Any] = {}
        if device.kind == "cpu":
            options.update(COMPILED_SOONER)
            if is_unit(fn):
                options.update(KEEPING_BARRIERS)
        # Inputs say the device, also those on which the result does not depend.
        self.run: Any = jax.jit(traced, keep_unused=True, compiler_options=options)
