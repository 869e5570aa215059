"""Steps: what is launched on a device one after the other is recorded, and becomes one program.

XLA schedules then what launches would have: it orders the operations of all functions in a step, fuses them across the
functions' borders, and allocates no memory for what only the step needs. In return nothing of a step is ready
before all of it is, nothing is enqueued before the step ends, and each new sequence of functions is compiled.

A step ends when a function that is in it is launched again; when something outside of it needs one of its values; and
at `MOST_LAUNCHES`. It belongs to one device and to one Python thread, so that threads make the same programs each time.

What is launched is computed: values that later launches of the step used, and nobody holds any more, are no outputs of
the program, but a launch of whose values none was used or is held gives them all the same.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, final
from weakref import ref

import jax

from backends.arrays import tree_map
from backends.devices import Device
from backends.jax import compiling
from backends.jax.arguments import Pending
from backends.jax.compiling import COMPILED_SOONER, Check, Program
from backends.jax.profiler import step_name

MOST_LAUNCHES = 16
"""Functions that a step has at most, so that what never repeats is enqueued too."""
MOST_PROGRAMS = 256
"""Steps that are kept compiled; the one that was not run for the longest time is dropped."""

_Place: TypeAlias = "int | tuple[int, int]"
"""Where an argument comes from: the number of an input of the step, or a launch in it and the array of its results."""
Enqueued = Callable[[Device, list[Any], list[Check]], object]
"""Called with the arrays and the checks of each program that a device was given."""


@final
class Steps:
    """The steps that are being recorded: one for each device and thread."""

    def __init__(self, own: Mapping[Device, Any], enqueued: Enqueued) -> None:
        self._own, self._enqueued = own, enqueued
        self._recorded: dict[tuple[Device, int], _Step] = {}

    def launch(self, device: Device, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Record a launch; return what it gives, in tuples as the function does."""
        if compiling.is_unit(fn):
            # It measures its kernels by themselves.
            self.end(device)
            result, checks = compiling.run(device, fn, values(args))
            self._enqueued(device, jax.tree.leaves(result), checks)
            return result
        key = device, threading.get_ident()
        return compiling.use(device, fn, args, lambda program, inputs: self._record(key, program, inputs))

    def end(self, device: Device) -> None:
        """Enqueue the steps of a device, whichever thread recorded them."""
        for (recorded_on, _), step in list(self._recorded.items()):
            if recorded_on == device:
                step.compute()

    def _record(self, key: tuple[Device, int], program: Program, inputs: Sequence[Any]) -> Any:
        shapes = program.shapes([x.shape_dtype if isinstance(x, Pending) else x for x in inputs])
        device, _ = key
        while True:
            step = self._recorded.get(key)
            if step is None or not step.takes(program):
                if step is not None:
                    step.compute()
                step = self._recorded[key] = _Step(device, self._own[device], self._enqueued)
            # Before the step is locked: two that need each other's values would wait for ever.
            known = [x.value if isinstance(x, Pending) and x.step is not step else x for x in inputs]
            # Another thread may have ended it meanwhile.
            if (results := step.record(program, known, shapes)) is not None:
                return jax.tree.unflatten(jax.tree.structure(shapes), results)


@final
@dataclass(frozen=True)
class _Launch:
    """A program within a step."""

    program: Program
    places: tuple[_Place, ...]
    results: "tuple[ref[Pending], ...]"


@final
class _Step:
    """Launches that become one program."""

    def __init__(self, device: Device, own: Any, enqueued: Enqueued) -> None:
        self._device, self._own, self._enqueued = device, own, enqueued
        self._launches: list[_Launch] = []
        self._inputs: list[Any] = []
        self._numbers: dict[int, int] = {}
        """The number of each array among the inputs, by its identity."""
        # Any thread may need a value of it.
        self._lock = threading.RLock()
        self._is_over = False

    def takes(self, program: Program) -> bool:
        """Return whether a launch may join the step."""
        is_new = all(launch.program.function != program.function for launch in self._launches)
        return is_new and len(self._launches) < MOST_LAUNCHES and not self._is_over

    def record(self, program: Program, inputs: Sequence[Any], shapes: Any) -> list[Pending] | None:
        """Add a launch, and return its arrays; None if the step is over."""
        with self._lock:
            if self._is_over:
                return None
            places = tuple(map(self._place, inputs))
            number = len(self._launches)
            leaves = enumerate(jax.tree.leaves(shapes))
            results = [Pending(self, (number, place), one, self._own) for place, one in leaves]
            self._launches.append(_Launch(program, places, tuple(map(ref, results))))
        return results

    def compute(self) -> None:
        """Enqueue the program, unless it was."""
        with self._lock:
            if self._is_over:
                return
            # From here on held, so that nothing is dropped meanwhile.
            held = [[result() for result in launch.results] for launch in self._launches]
            outputs = tuple(_outputs(self._launches, held))
            launches = tuple((launch.program, launch.places) for launch in self._launches)
            arrays, checks = _program(self._device, launches, outputs)(*self._inputs)
            self._enqueued(self._device, arrays, checks)
            for (number, place), array in zip(outputs, arrays, strict=True):
                if (pending := held[number][place]) is not None:
                    pending.value = array
            self._is_over = True
            self._launches, self._inputs, self._numbers = [], [], {}

    def _place(self, x: Any) -> _Place:
        if isinstance(x, Pending):
            return x.place
        # Equal numbers may be unequal in the next step.
        number = self._numbers.get(id(x)) if isinstance(x, jax.Array) else None
        if number is None:
            number = len(self._inputs)
            self._inputs.append(x)
            self._numbers[id(x)] = number
        return number


def _outputs(launches: Sequence[_Launch], held: Sequence[Sequence[Pending | None]]) -> Iterator[tuple[int, int]]:
    used = {place for launch in launches for place in launch.places}
    for number, results in enumerate(held):
        places = [(number, place) for place in range(len(results))]
        own = [place for place, result in zip(places, results, strict=True) if result is not None]
        yield from own if own or used & {*places} else places


@lru_cache(MOST_PROGRAMS)
def _program(
    device: Device, launches: tuple[tuple[Program, tuple[_Place, ...]], ...], outputs: tuple[tuple[int, int], ...]
) -> Callable[..., tuple[list[Any], list[Check]]]:
    def traced(*inputs: Any) -> tuple[list[Any], list[Check]]:
        results: list[list[Any]] = []
        checks: list[Check] = []
        for program, places in launches:
            given = (results[at[0]][at[1]] if isinstance(at, tuple) else inputs[at] for at in places)
            result, own = program.within(*given)
            results.append(jax.tree.leaves(result))
            checks += own
        return [results[number][place] for number, place in outputs], checks

    traced.__name__ = traced.__qualname__ = step_name([program.name for program, _ in launches], device)
    jitted: Callable[..., tuple[list[Any], list[Check]]] = jax.jit(
        traced, keep_unused=True, compiler_options=COMPILED_SOONER
    )
    return jitted


def values(x: Any) -> Any:
    """Return the arrays of JAX for a value's arrays; the steps that compute them are enqueued."""
    return tree_map(lambda leaf: leaf.value if isinstance(leaf, Pending) else leaf, x)
