"""The model of a program that is drawn: its values on the reference, and which may be used."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from typing import Any, final

import numpy as np

from backends.arrays import tree_leaves
from backends.conformance.programs import Failure, Program, Statement, reference_namespace

Content = Any
"""An array of NumPy, or a tuple of contents."""
LARGEST = 2.0**15
"""The largest number: larger ones had to be compared with a tolerance that hides faults."""


class UnsuitableError(Exception):
    """A statement cannot be part of a program.

    Its numbers are too large, or no value exists that it could use.
    """


@final
@dataclass(frozen=True)
class Value:
    """A value as a program writes it, and what it is on the reference.

    It is written `v3`, or `v3[-1]` for an item.
    """

    text: str
    name: str
    content: Content
    device: int
    thread: int = 0
    exact: bool = True
    """Whether all backends have the same bits.

    A derivative may jump between numbers that are only close.
    """

    def item(self, index: int) -> "Value":
        """Return an item of a tuple; `index` may be negative."""
        return replace(self, text=f"{self.text}[{index}]", content=self.content[index])


class Model:
    """The statements so far, and their values on the reference."""

    def __init__(self, random: Random, devices: int) -> None:
        self.random, self.devices = random, devices
        self.statements: list[Statement] = []
        self._values: dict[str, Value] = {}
        self.thread = 0
        """The Python thread of the next statements: the threads' values are their own."""
        self._unusable: set[int] = set()
        self._namespace = reference_namespace(devices)
        self._named = 0

    def program(self) -> Program:
        """Return the program of the statements so far."""
        return Program(self.devices, tuple(self.statements))

    def make(
        self,
        call: str,
        device: int,
        *uses: Value,
        consumes: Sequence[Value] = (),
        fails: Failure = "",
        stand_in: str = "",
    ) -> Value:
        """Add the call of a verb that gives one value, and return that value.

        `stand_in` is the call that gives the reference a value in place of a call that fails.
        """
        name = self._new_name("v")
        source = f"{name} = backend.{call}"
        source_of_stand_in = f"{name} = backend.{stand_in}" if stand_in else ""
        used = _names(uses, consumes)
        statement = Statement(source, (name,), used, device, fails, source_of_stand_in)
        self._add(statement, {name: device}, consumes)
        return self._values[name]

    def make_on(
        self, call: str, devices: Sequence[int], consumes: Sequence[Value] = ()
    ) -> list[Value]:
        """Add the call of a verb that gives one value for each device, and return those values."""
        device_of = {self._new_name("v"): device for device in devices}
        names = tuple(device_of)
        comma = "," if len(names) == 1 else ""
        source = f"{', '.join(names)}{comma} = backend.{call}"
        self._add(Statement(source, names, _names(consumes)), device_of, consumes)
        return [self._values[name] for name in names]

    def allreduce(self, terms: Sequence[Value]) -> list[Value]:
        """Add the sum of one value per device, and return the sum on each of these devices."""
        texts = ", ".join(term.text for term in terms)
        devices = [term.device for term in terms]
        return self.make_on(f"allreduce([{texts}])", devices, consumes=terms)

    def read(self, value: Value) -> None:
        """Add a statement that brings a value to NumPy, to be compared."""
        self.read_from(f"backend.to_numpy({value.text})", value)

    def read_from(
        self, source: str, *uses: Value, consumes: Sequence[Value] = (), fails: Failure = ""
    ) -> None:
        """Add a statement whose result is compared: NumPy's arrays, or a number of Python's."""
        name = self._new_name("r")
        statement = Statement(
            f"{name} = {source}", (name,), _names(uses, consumes), fails=fails, waits=True
        )
        self._add(statement, consumes=consumes)

    def do(
        self,
        call: str,
        *uses: Value,
        consumes: Sequence[Value] = (),
        fails: Failure = "",
        waits: bool = False,
    ) -> None:
        """Add the call of a verb whose result is not used."""
        stand_in = "pass" if fails else ""
        statement = Statement(
            f"backend.{call}", (), _names(uses, consumes), None, fails, stand_in, waits
        )
        self._add(statement, consumes=consumes)

    def drop(self, value: Value) -> None:
        """Add a statement that forgets a name; values that share its memory stay."""
        self._add(Statement(f"del {value.name}", (), (value.name,), stand_in="pass"))
        del self._values[value.name]

    def consumable(self, *contents: Content) -> bool:
        """Return whether no two arrays of these values overlap."""
        pairs = combinations(tree_leaves(contents), 2)
        return not any(_overlap(x, y) for x, y in pairs)

    def values(self) -> Iterator[Value]:
        """Iterate over all values and their items that may be used, the newest first."""
        for value in reversed(list(self._values.values())):
            if value.thread == self.thread:
                items = self._with_items(value)
                yield from (item for item in items if self._usable(item.content))

    def pick(self, suits: Callable[[Value], object] = lambda _: True) -> Value:
        """Choose a value, a new one more likely than an old one.

        Raises UnsuitableError if there is none.
        """
        candidates = [value for value in self.values() if suits(value)]
        if not candidates:
            raise UnsuitableError
        # The candidates begin with the newest; the third power draws mostly from there.
        share_of_list = self.random.random() ** 3 * 0.999
        return candidates[int(len(candidates) * share_of_list)]

    def pick_array(self, suits: Callable[[Value], object] = lambda _: True) -> Value:
        """Choose a value that is an array, and no tuple."""
        return self.pick(lambda value: isinstance(value.content, np.ndarray) and suits(value))

    def pick_floats(self, suits: Callable[[Value], object] = lambda _: True) -> Value:
        """Choose an array of finite floating-point numbers."""

        def is_suitable(value: Value) -> bool:
            if value.content.dtype.kind != "f":
                return False
            is_finite = bool(np.isfinite(value.content).all())
            return is_finite and bool(suits(value))

        return self.pick_array(is_suitable)

    def some_devices(self, most: int = 9) -> list[int]:
        """Choose at least one device, in any order."""
        count = self.random.randint(1, min(most, self.devices))
        return self.random.sample(range(self.devices), count)

    def _add(
        self,
        statement: Statement,
        device_of: dict[str, int] | None = None,
        consumes: Sequence[Value] = (),
    ) -> None:
        """Run a statement on the reference, and keep it and the values that it names."""
        exec(statement.for_reference, self._namespace)
        device_of = device_of or {}
        if any(_too_large(self._namespace[name]) for name in device_of):
            raise UnsuitableError
        self.statements.append(replace(statement, thread=self.thread))
        used_values = [self._values[name] for name in statement.uses if name in self._values]
        is_exact = all(value.exact for value in used_values)
        if "cross_entropy" in statement.source:
            is_exact = False
        for name, device in device_of.items():
            content = self._namespace[name]
            self._values[name] = Value(name, name, content, device, self.thread, is_exact)
        self._forbid_memory_of(consumes)

    def _forbid_memory_of(self, consumed: Sequence[Value]) -> None:
        """Let no further statement use an array that may share memory with a consumed value."""
        consumed_arrays = list(tree_leaves([value.content for value in consumed]))
        if not consumed_arrays:
            return
        for array in tree_leaves([value.content for value in self._values.values()]):
            if any(_overlap(array, consumed_array) for consumed_array in consumed_arrays):
                self._unusable.add(id(array))

    def _new_name(self, letter: str) -> str:
        """Return a name that the program does not have yet."""
        self._named += 1
        return f"{letter}{self._named}"

    def _usable(self, content: Content) -> bool:
        """Return whether no array of a content has been consumed."""
        return not any(id(leaf) in self._unusable for leaf in tree_leaves(content))

    def _with_items(self, value: Value) -> Iterator[Value]:
        """Iterate over a value and its items, a few of many, now and then counted from the end."""
        yield value
        if not isinstance(value.content, tuple):
            return
        length = len(value.content)
        indices: Sequence[int] = range(length)
        if length > 4:
            indices = self.random.sample(indices, 3)
        for index in indices:
            is_counted_from_end = self.random.random() >= 0.7
            item_index = index - length if is_counted_from_end else index
            yield from self._with_items(value.item(item_index))


def tuple_text(texts: Sequence[str]) -> str:
    """Return a tuple's text, made of the texts of its items."""
    comma = "," if len(texts) == 1 else ""
    return f"({', '.join(texts)}{comma})"


def _names(*groups: Sequence[Value]) -> tuple[str, ...]:
    """Return the names of values, each once."""
    return tuple(dict.fromkeys(value.name for values in groups for value in values))


def _overlap(x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether two arrays may share memory."""
    return x is y or np.may_share_memory(x, y)


def _too_large(content: Content) -> bool:
    """Return whether a content has a floating-point number above `LARGEST`."""
    floats = [leaf for leaf in tree_leaves(content) if leaf.dtype.kind == "f"]
    return any((np.abs(leaf) > LARGEST).any() for leaf in floats)
