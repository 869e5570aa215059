"""Compiles what is launched: once for each function, and for each shape and dtype of its arguments.

A program holds what its function did when it was traced, and is found again by what the function is: its code, and
what its closure, its defaults and the global names that it uses hold. So a lambda that a loop makes anew is compiled
once; a number that it captures, and that has changed, makes another program. The rule for what is launched:

- Arrays and fractions (`float`) among the arguments are a program's inputs. Whole numbers, functions and all else are
  part of it, and so is a fraction on whose value the function decides: another value, another program.
- What is captured is compared by value if it is a number, a string, a function, an array of NumPy, or a tuple, list,
  dict or dataclass of such; an array of JAX and any other object are compared by identity, and must not change.
- A function is called when it is compiled, and not when it is launched again: it must do nothing but compute.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any, TypeVar, final

import jax
import numpy as np
from jax import monitoring

from backends.arrays import rebuilt
from backends.devices import Device
from backends.host import tell_compiling
from backends.jax.identity import identity
from backends.jax.names import plain, program_name
from backends.jax.pending import ARRAYS
from backends.jax.tracing import KEEPING_BARRIERS, Check, collecting_checks, one_by_one
from backends.profiling.marks import function_name

__all__ = ["COMPILED_SOONER", "Compiled", "Program", "compiled", "is_unit", "keep_programs", "run", "use"]

T = TypeVar("T")
MOST_PROGRAMS = 1024
"""Functions that are kept compiled; the one that was not launched for the longest time is dropped."""


WORTH_KEEPING = 0.05
"""Seconds of compiling from which a program is kept on disk."""


@final
class _Launching(threading.local):
    compiled = False
    """Whether this thread's launch made a program."""
    is_timed = False
    """Whether this thread's launch is timed as a whole."""


_launching = _Launching()
COMPILING = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")
"""JAX's events of a program that is new: it is written down for XLA, and XLA compiles it."""
COMPILED_SOONER: Mapping[str, bool | int | str] = {
    # Emitters that go through MLIR take half of the time to compile LeNet's gradient, which is as fast without.
    "xla_cpu_use_fusion_emitters": False,
    # Parts that are compiled in parallel repeat work, and a device's programs compile on few cores anyway.
    "xla_cpu_parallel_codegen_split_count": 1,
}


@final
class Compiled:
    """How many programs were compiled, or read from where they are kept, and how long it took, in first launches."""

    programs = 0
    seconds = 0.0


compiled = Compiled()


def keep_programs() -> None:
    """Let JAX keep what took long to compile, for this user's other processes, unless the user says where or not to."""
    if jax.config.jax_compilation_cache_dir is None and find_spec("platformdirs") is not None:
        from platformdirs import user_cache_path

        jax.config.update("jax_compilation_cache_dir", str(user_cache_path("parallel-core") / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)


def _count(event: str, seconds: float, **_: Any) -> None:
    # Tracing is counted in another event, which functions within functions count again.
    if event in COMPILING:
        compiled.seconds += seconds
        compiled.programs += event == COMPILING[-1]
        _launching.compiled = True
        if not _launching.is_timed:
            tell_compiling(seconds)


monitoring.register_event_duration_secs_listener(_count)


def run(device: Device, fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Check]]:
    """Enqueue a function as one program, which is compiled if it is new; return its result and its checks."""
    return use(device, fn, args, lambda program, inputs: program.run(*inputs))


def use(
    device: Device, fn: Callable[..., Any], args: Sequence[Any], call: Callable[["Program", Sequence[Any]], T]
) -> T:
    """Call a function with the program of a launch, which it traces or runs, and with its inputs."""
    started = perf_counter()
    _launching.compiled, _launching.is_timed = False, True
    try:
        return _use(device, fn, args, call)
    finally:
        _launching.is_timed = False
        if _launching.compiled:
            # Of tracing, which JAX tells in parts that hold each other, too.
            tell_compiling(perf_counter() - started)


def _use(
    device: Device, fn: Callable[..., Any], args: Sequence[Any], call: Callable[["Program", Sequence[Any]], T]
) -> T:
    inputs: list[Any] = []
    program = _program(_Key(device, fn, tuple(_spec(arg, inputs, _is_input) for arg in args)))
    if not program.needs_numbers:
        try:
            return call(program, inputs)
        except jax.errors.ConcretizationTypeError:
            # It decides on a fraction's value, or it is wrong: then it fails again.
            program.needs_numbers = True
    inputs = []
    program = _program(_Key(device, fn, tuple(_spec(arg, inputs, _is_array) for arg in args)))
    return call(program, inputs)


def is_unit(fn: Callable[..., Any]) -> bool:
    """Return whether a function is one that `ops.as_unit` made."""
    return isinstance(fn, partial) and fn.func is one_by_one


@final
class Program:
    """What is launched by a function with arguments of some form."""

    def __init__(self, device: Device, fn: Callable[..., Any], specs: tuple[Any, ...], function: Hashable) -> None:
        self.needs_numbers = False
        self.function, self.name = function, plain(function_name(fn))
        """What is equal for equal functions, and how it is called in a profile."""
        self._shapes: dict[Hashable, Any] = {}

        def traced(*inputs: Any) -> tuple[Any, list[Check]]:
            given = iter(inputs)
            with collecting_checks() as checks:
                result = fn(*(_filled(spec, given) for spec in specs))
            return result, checks

        traced.__name__ = traced.__qualname__ = program_name(function_name(fn), device)
        options = {**COMPILED_SOONER, **(KEEPING_BARRIERS if is_unit(fn) else {})}
        # Unused inputs say the device, also if the result does not depend on them.
        self.run: Any = jax.jit(traced, keep_unused=True, compiler_options=options)
        self.within: Any = jax.jit(traced, keep_unused=True)
        """The same for a trace around it, whose program has the options of XLA."""

    def shapes(self, inputs: Sequence[Any]) -> Any:
        """Return the shapes and dtypes of the result, in its tuples; the function is called if they are not known."""
        key = tuple(float if isinstance(x, float) else (x.shape, x.dtype, x.weak_type) for x in inputs)
        if key not in self._shapes:
            self._shapes[key], _ = self.within.eval_shape(*inputs)
        return self._shapes[key]


@final
class _Key:
    """A function with what it is launched on, equal to another one if both make the same program."""

    __slots__ = ("_hash", "_identity", "device", "fn", "function", "specs")

    def __init__(self, device: Device, fn: Callable[..., Any], specs: tuple[Any, ...]) -> None:
        self.device, self.fn, self.specs = device, fn, specs
        # XLA compiles for each device anyway.
        self.function = identity(fn)
        self._identity = device, self.function, specs
        self._hash = hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity


@lru_cache(MOST_PROGRAMS)
def _program(key: _Key) -> Program:
    return Program(key.device, key.fn, key.specs, key.function)


@final
class _Input:
    """The place of an input."""


@final
@dataclass(frozen=True)
class _Fixed:
    """What is part of the program."""

    identity: Hashable
    value: Any

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and self.identity == other.identity


INPUT = _Input()


def _is_input(x: Any) -> bool:
    return isinstance(x, (*ARRAYS, float, np.floating))


def _is_array(x: Any) -> bool:
    return isinstance(x, ARRAYS)


def _spec(x: Any, inputs: list[Any], is_input: Callable[[Any], bool]) -> Any:
    """Append the inputs among an argument to a list, and return what is left."""
    if is_input(x):
        # NumPy's own numbers have a dtype that may win over the arrays'.
        inputs.append(x if isinstance(x, ARRAYS) else float(x))
        return INPUT
    if isinstance(x, tuple | list):
        return (type(x), *(_spec(item, inputs, is_input) for item in x))
    return _Fixed(identity(x), x)


def _filled(spec: Any, given: Iterator[Any]) -> Any:
    if spec is INPUT:
        return next(given)
    if isinstance(spec, _Fixed):
        return spec.value
    kind, *items = spec
    return rebuilt(kind, (_filled(item, given) for item in items))
