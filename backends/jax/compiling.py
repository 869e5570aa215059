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

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from types import CodeType, FunctionType, MethodType
from typing import Any, final

import jax
import numpy as np
from jax import monitoring

from backends.devices import Device
from backends.jax import ops
from backends.jax.names import program_name
from backends.jax.tracing import KEEPING_BARRIERS, Check, collecting_checks, one_by_one
from backends.profiling.marks import function_name

__all__ = ["Compiled", "compiled", "keep_programs", "run"]

MOST_PROGRAMS = 1024
"""Functions that are kept compiled; the one that was not launched for the longest time is dropped."""
PLAIN = (int, str, bytes, bool, type(None), type(Ellipsis))


WORTH_KEEPING = 0.2
"""Seconds of compiling from which a program is kept on disk."""


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
    if event == "/jax/core/compile/backend_compile_duration":
        compiled.seconds += seconds
        compiled.programs += 1


monitoring.register_event_duration_secs_listener(_count)


def run(device: Device, fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Check]]:
    """Enqueue a function as one program, which is compiled if it is new; return its result and its checks."""
    inputs: list[Any] = []
    program = _program(_Key(device, fn, tuple(_spec(arg, inputs, _is_input) for arg in args)))
    if not program.needs_numbers:
        try:
            return program.run(*inputs)
        except jax.errors.ConcretizationTypeError:
            # It decides on a fraction's value, or it is wrong: then it fails again.
            program.needs_numbers = True
    inputs = []
    program = _program(_Key(device, fn, tuple(_spec(arg, inputs, _is_array) for arg in args)))
    return program.run(*inputs)


@final
class _Program:
    def __init__(self, device: Device, fn: Callable[..., Any], specs: tuple[Any, ...]) -> None:
        self.needs_numbers = False

        def traced(*inputs: Any) -> tuple[Any, list[Check]]:
            given = iter(inputs)
            with collecting_checks() as checks:
                result = fn(*(_filled(spec, given) for spec in specs))
            return result, checks

        traced.__name__ = traced.__qualname__ = program_name(function_name(fn), device)
        self.run: Callable[..., tuple[Any, list[Check]]] = jax.jit(
            traced,
            # They say the device, also if the result does not depend on them.
            keep_unused=True,
            compiler_options=KEEPING_BARRIERS if isinstance(fn, partial) and fn.func is one_by_one else None,
        )


@final
class _Key:
    """A function with what it is launched on, equal to another one if both make the same program."""

    __slots__ = ("_hash", "_identity", "device", "fn", "specs")

    def __init__(self, device: Device, fn: Callable[..., Any], specs: tuple[Any, ...]) -> None:
        self.device, self.fn, self.specs = device, fn, specs
        # XLA compiles for each device anyway.
        self._identity = device, _identity(fn, ()), specs
        self._hash = hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity


@lru_cache(MOST_PROGRAMS)
def _program(key: _Key) -> _Program:
    return _Program(key.device, key.fn, key.specs)


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
    return isinstance(x, jax.Array | float | np.floating)


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array)


def _spec(x: Any, inputs: list[Any], is_input: Callable[[Any], bool]) -> Any:
    """Append the inputs among an argument to a list, and return what is left."""
    if is_input(x):
        # NumPy's own numbers have a dtype that may win over the arrays'.
        inputs.append(x if isinstance(x, jax.Array) else float(x))
        return INPUT
    if type(x) in (tuple, list):
        return (type(x), *(_spec(item, inputs, is_input) for item in x))
    return _Fixed(_identity(x, ()), x)


def _filled(spec: Any, given: Iterator[Any]) -> Any:
    if spec is INPUT:
        return next(given)
    if isinstance(spec, _Fixed):
        return spec.value
    kind, *items = spec
    return kind(_filled(item, given) for item in items)


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


def _identity(x: Any, within: tuple[Any, ...]) -> Hashable:
    """Return what is equal for two objects if and only if programs that hold them are."""
    kind = type(x)
    if kind in PLAIN:
        return kind, x
    if kind is FunctionType:
        return _identity_of_function(x, within)
    if kind is float:
        return kind, x.hex()
    if isinstance(x, partial):
        return kind, *(_identity(part, within) for part in (x.func, x.args, x.keywords))
    if kind is MethodType:
        return kind, _identity(x.__func__, within), _identity(x.__self__, within)
    if isinstance(x, tuple | list):
        return kind, *(_identity(item, within) for item in x)
    if kind is dict:
        return kind, *((_identity(key, within), _identity(value, within)) for key, value in x.items())
    if isinstance(x, np.ndarray | np.generic):
        return kind, x.dtype.str, x.shape, x.tobytes()
    if is_dataclass(x) and not isinstance(x, type):
        return kind, *(_identity(getattr(x, one.name), within) for one in fields(x))
    return _Same(x)


def _identity_of_function(fn: FunctionType, within: tuple[Any, ...]) -> Hashable:
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
    return fn.__code__, _identity(held, within)


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    """List the names that a function uses beside its own, those of functions in it too."""
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))
