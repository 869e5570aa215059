"""The marks that a backend's verbs leave in a profile: which verb was called, with which function,
for which device.

The mark of a verb ends in the number of its call. Work that a worker runs for that call stands
under a mark with the same number; the time between the two is how long the work waited.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from itertools import count
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from backends.arrays import tree_leaves
from backends.devices import Device
from backends.protocol import Array

Mark: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""How a framework writes a named span of the calling thread into its profile."""
FindDevice: TypeAlias = Callable[..., "Device | None"]
"""Takes a verb's name and arguments, returns the device whose queue its work goes to; None if there
are several.
"""

# MXNet does not escape quotation marks in its JSON, and PyTorch replaces what is not ASCII by
# "unknown".
READABLE = " '()*+,-./:<=>?@[]_|"
OURS = "parallel_core: "
"""Begins each mark: what a program annotates itself may read like one otherwise."""
MARKED_VERBS = ("launch", "wait", "waitall", "copy_to", "allreduce")
CASE = f"{OURS}case "

DEVICE = r"[cg]pu:\d+(?:/\d+)?"
CALL_MARK = re.compile(rf"{OURS}((?:{'|'.join(MARKED_VERBS)})\b.*?)(?: on ({DEVICE}))? #(\d+)")
TASK_MARK = re.compile(rf"{OURS}run (.*) on ({DEVICE}|host) ([\w ]+) #(\d+)")

_numbers = count(1)
_calling = threading.local()


class ParsedMark(NamedTuple):
    """A verb with its function, or the work of a worker; `queue` is empty for verbs."""

    name: str
    device: str
    queue: str
    number: int


def case_text(name: str) -> str:
    """Return the text of the mark under which a case is repeated."""
    return f"{CASE}{quote(name, safe=READABLE)}"


def parse_case(text: str) -> str | None:
    """Return the case that a mark names; None for other marks."""
    return unquote(text.removeprefix(CASE)) if text.startswith(CASE) else None


def parse_verb(text: str) -> ParsedMark | None:
    """Parse the mark of a verb's call; None for other marks."""
    match = CALL_MARK.fullmatch(text)
    return match and ParsedMark(match[1], match[2] or "", "", int(match[3]))


def task_text(name: str, queue: str) -> str:
    """Return the text of the mark of work that the present call of a verb submits; `queue` is
    `cpu:1 compute`, say.
    """
    return f"{OURS}run {name} on {queue} #{getattr(_calling, 'number', 0)}"


def parse_task(text: str) -> ParsedMark | None:
    """Parse the mark of work on a worker; None for other marks."""
    match = TASK_MARK.fullmatch(text)
    return match and ParsedMark(match[1], match[2], match[3], int(match[4]))


def function_name(fn: Any) -> str:
    """Return the name of a function, also of a partial one, in characters that every profiler
    writes.
    """
    while isinstance(fn, partial):
        fn = fn.func
    return quote(getattr(fn, "__name__", type(fn).__name__), safe=READABLE)


@contextmanager
def marking_verbs(
    backend: object,
    mark: Mark,
    device_of: FindDevice,
    name_of: Callable[[Any], str] = function_name,
) -> Iterator[None]:
    """Put every call of the backend's verbs under a mark, within the context.

    The verbs are shadowed on this one object, so that they cost nothing more without a profile.
    """
    shadowed = {
        name: _under_mark(getattr(backend, name), name, mark, device_of, name_of)
        for name in MARKED_VERBS
    }
    vars(backend).update(shadowed)
    try:
        yield
    finally:
        for name, verb in shadowed.items():
            # After a failure, a verb that refuses is in its place.
            if vars(backend)[name] is verb:
                del vars(backend)[name]


def _under_mark(
    verb: Callable[..., Any],
    name: str,
    mark: Mark,
    device_of: FindDevice,
    name_of: Callable[[Any], str],
) -> Callable[..., Any]:
    @wraps(verb)
    def call(*args: Array, **named: Array) -> Any:
        outer = getattr(_calling, "number", 0)
        number = _calling.number = next(_numbers)
        text = OURS + (f"{name} {name_of(args[0])}" if name == "launch" else name)
        device = device_of(name, *args, **named)
        try:
            with mark(f"{text}{f' on {device}' if device else ''} #{number}"):
                return verb(*args, **named)
        finally:
            # Work that is submitted outside of a verb must not take the number of the last call.
            _calling.number = outer

    return call


def queue_device(
    backend: Any,
    array_type: type | tuple[type, ...],
    verb: str,
    *args: Array,
    copies_by_source: bool = False,
    **named: Any,
) -> Device | None:
    """Return the device whose queue a verb's work goes to, by its arrays, of this type; None if
    there are several.
    """
    if verb == "copy_to" and not copies_by_source:
        return named.get("device") or args[1]
    if verb in ("copy_to", "launch"):
        for leaf in tree_leaves((args, tuple(named.values()))):
            if isinstance(leaf, array_type):
                device: Device = backend.device_of(leaf)
                return device
    return None
