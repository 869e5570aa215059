"""PyTorch on GPUs, whole, beside CPU devices, and as several streams: who waits for whom, on made-up GPUs."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends import HOST, Array, Backend
from backends.devices import Device, same_memory

PLACES = ("gpu:0/0,gpu:0/1", "cpu:1,gpu:0", "gpu:1,cpu:2,gpu:0/0,gpu:0/1,cpu:1", "gpu:0", "gpu:1,gpu:0")
NAMES = st.sampled_from(PLACES)

Loaded = tuple[Backend, Any]


@dataclass(frozen=True)
class Value:
    """What a program holds: its numbers as they should be, and which part of which memory they may be in."""

    device: Device
    x: Array
    numbers: Any
    memory: object
    start: int = 0

    def meets(self, other: "Value") -> bool:
        """Return whether it may share memory with another value."""
        places = [range(one.start, one.start + len(one.numbers)) for one in (self, other)]
        return self.memory is other.memory and bool({*places[0]} & {*places[1]})


class Program:
    """Runs steps on a backend, and on numbers."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.places = [*backend.devices, HOST]
        self.values: list[Value] = []
        for k, device in enumerate(self.places):
            self.load(device, np.float32([k, 1, k, 2]))

    def add(self, device: Device, x: Array, numbers: Any) -> None:
        """Add a value in memory of its own."""
        self.values.append(Value(device, x, numbers, object()))

    def load(self, device: Device, numbers: Any) -> None:
        """Load numbers onto a device."""
        self.add(device, self.backend.asarray(numbers, device), numbers)

    def consume(self, value: Value, x: Array, numbers: Any) -> None:
        """Replace a value by its result; all that may share its memory must not be used any more."""
        self.values = [other for other in self.values if not other.meets(value)]
        self.values.append(replace(value, x=x, numbers=numbers))

    def split(self, value: Value) -> None:
        """Add the halves of a value, which may be views, by an index from the start and one from the end."""
        half = len(value.numbers) // 2
        parts = self.backend.launch(self.backend.ops.split, value.x, (half, len(value.numbers) - half))
        first, second = value.numbers[:half], value.numbers[half:]
        self.values.append(replace(value, x=parts[0], numbers=first))
        self.values.append(replace(value, x=parts[-1], numbers=second, start=value.start + half))

    def sum(self, length: int) -> None:
        """Sum the first value of each device that is this long."""
        fitting = [value for value in self.values if len(value.numbers) == length]
        terms = [next((v for v in fitting if v.device == device), None) for device in self.backend.devices]
        chosen = [term for term in terms if term is not None]
        if any(one.meets(other) for one, other in combinations(chosen, 2)):
            return
        total = sum(term.numbers for term in chosen)
        for term, x in zip(chosen, self.backend.allreduce([term.x for term in chosen]) if chosen else (), strict=True):
            self.consume(term, x, total)

    def step(self, what: str, i: int, j: int) -> None:
        """Do one thing, with values and places chosen by two numbers."""
        value, place = self.values[i % len(self.values)], self.places[j % len(self.places)]
        alike = [other for other in self.values if len(other.numbers) == len(value.numbers)]
        match what:
            case "load":
                self.load(place, np.float32([i, j, i, j]))
            case "add":
                near = [other for other in alike if same_memory(other.device, value.device)]
                other = near[j % len(near)]
                added = self.backend.launch(self.backend.ops.add, value.x, other.x)
                self.add(value.device, added, value.numbers + other.numbers)
            case "copy":
                self.add(place, self.backend.copy_to(value.x, place), value.numbers)
            case "overwrite":
                out = alike[j % len(alike)]
                if not out.meets(value):
                    self.consume(out, self.backend.copy_to(value.x, out.device, out=out.x), value.numbers)
            case "split":
                self.split(value)
            case "return":
                pair = self.backend.launch(lambda x, _: (x, 1.0), value.x, 0)
                self.values.append(replace(value, x=pair[-2]))
            case "sum":
                self.sum(4 >> j % 3)
            case "drop" if len(self.values) > len(self.places):
                del self.values[i % len(self.values)]
            case "wait":
                self.backend.wait(value.x)


WHATS = ["add", "copy", "overwrite", "split", "return", "sum", "drop", "wait", "load"]
STEPS = st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 9), st.integers(0, 9)), max_size=30)


# A copy still reads what is overwritten, on streams that nothing else connects: rarely found by chance.
@example("gpu:1,gpu:0", [("copy", 0, 1), ("overwrite", 2, 0)], 1, ())
# The same through a view, counted from the end.
@example("gpu:1,gpu:0", [("split", 0, 0), ("copy", 4, 1), ("overwrite", 2, 0)], 1, ())
# And if the view is overwritten, and all of the memory is read.
@example("gpu:1,gpu:0", [("split", 0, 0), ("split", 1, 0), ("copy", 0, 1), ("overwrite", 6, 1)], 1, ())
@settings(max_examples=60)
@given(NAMES, STEPS, st.integers(0, 99), st.sampled_from([(), ("copy-on-compute-queue",)]))
def test_random_programs_have_no_races_and_give_numpy_s_numbers(
    on_made_up_gpus: Callable[..., Loaded],
    names: str,
    steps: list[tuple[str, int, int]],
    seed: int,
    variants: tuple[str, ...],
) -> None:
    backend, cuda = on_made_up_gpus(names, seed, variants if "cpu" not in names else ())
    program = Program(backend)
    for step in steps:
        program.step(*step)
    for value in program.values:
        np.testing.assert_allclose(backend.to_numpy(value.x), value.numbers)
    backend.waitall()
    assert cuda.races == []


def test_a_value_is_let_go_when_its_readers_are_done(on_made_up_gpus: Callable[..., Loaded]) -> None:
    backend, cuda = on_made_up_gpus("gpu:0/0,gpu:0/1")
    first, second = backend.devices
    for step in range(20):
        x = backend.asarray(np.full(3, step, dtype=np.float32), first)
        y = backend.copy_to(backend.launch(backend.ops.add, x, 1.0), second)
        backend.launch(backend.ops.add, y, 1.0)
    del x, y
    backend.waitall()
    left = sum(cuda.users[memory] > 0 for memory in cuda.allocated_on)
    assert left < 40
    assert cuda.races == []


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("names", PLACES)
def test_what_was_read_by_a_name_that_is_gone_is_not_overwritten(
    on_made_up_gpus: Callable[..., Loaded], names: str, profiled: bool
) -> None:
    for place in range(len(names.split(",")) + 1):
        backend, cuda = on_made_up_gpus(names)
        with ExitStack() as profile:
            for stream in backend.streams if profiled else ():  # type: ignore[attr-defined]
                profile.enter_context(stream.submitting(lambda fn: lambda *args: fn(*args)))
            overwrite_what_is_read(backend, (*backend.devices, HOST)[place])
        assert cuda.races == []


def overwrite_what_is_read(backend: Backend, there: Device) -> None:
    """Copy a view to every device, let it go, and overwrite the memory."""
    x, new = (backend.asarray(np.float32([k, 1, 2, 3]), there) for k in (0, 4))
    parts = backend.launch(backend.ops.split, x, (2, 2))
    copies = [backend.copy_to(parts[-1], device) for device in backend.devices]
    backend.wait(parts)
    del parts
    x = backend.copy_to(new, there, out=x)
    for copy in copies:
        np.testing.assert_array_equal(backend.to_numpy(copy), [2, 3])
    np.testing.assert_array_equal(backend.to_numpy(x), [4, 1, 2, 3])


@pytest.mark.parametrize("names", PLACES)
def test_large_arrays_cross_in_pieces(on_made_up_gpus: Callable[..., Loaded], names: str) -> None:
    backend, cuda = on_made_up_gpus(names)
    x = np.arange(2**20 + 3, dtype=np.float32)
    for device in backend.devices:
        for other in (*backend.devices, HOST):
            there = backend.copy_to(backend.asarray(x, device), other)
            np.testing.assert_array_equal(backend.to_numpy(backend.copy_to(there, device)), x)
    assert cuda.races == []
