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
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from backends.arrays import tree_leaves
from backends.devices import Device
from backends.protocol import Array

Mark = Callable[[str], AbstractContextManager[object]]
"""How a framework writes a named span of the calling thread into its profile."""
FindDevice = Callable[..., "Device | None"]
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
    if match is None:
        return None
    name, device, number = match.groups()
    return ParsedMark(name, device or "", "", int(number))


def task_text(name: str, queue: str) -> str:
    """Return the text of the mark of work that the present call of a verb submits.

    `queue` is `cpu:1 compute`, say.
    """
    number = getattr(_calling, "number", 0)
    return f"{OURS}run {name} on {queue} #{number}"


def parse_task(text: str) -> ParsedMark | None:
    """Parse the mark of work on a worker; None for other marks."""
    match = TASK_MARK.fullmatch(text)
    if match is None:
        return None
    name, device, queue, number = match.groups()
    return ParsedMark(name, device, queue, int(number))


def function_name(fn: Any) -> str:
    """Return the name of a function, or of the function of a `partial`.

    Characters that not every profiler writes are quoted as in a URL.
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

    The verbs are shadowed on this object only, so that they cost nothing more without a profile.
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
    """Return a verb, called `name`, that leaves a mark: `launch relu on cpu:1 #5`, say."""

    @wraps(verb)
    def call(*args: Array, **named: Array) -> Any:
        number_before = getattr(_calling, "number", 0)
        number = next(_numbers)
        _calling.number = number
        device = device_of(name, *args, **named)
        text = f"{OURS}{name}"
        if name == "launch":
            text += f" {name_of(args[0])}"
        if device:
            text += f" on {device}"
        try:
            with mark(f"{text} #{number}"):
                return verb(*args, **named)
        finally:
            # Work that is submitted outside of a verb must not take the number of the last call.
            _calling.number = number_before

    return call


def queue_device(
    backend: Any,
    array_type: type | tuple[type, ...],
    verb: str,
    *args: Array,
    copies_by_source: bool = False,
    **named: Any,
) -> Device | None:
    """Return the device whose queue a verb's work goes to; None if there are several.

    It is the destination of a copy, or its source with `copies_by_source`, and the device of the
    first array of a launch. Arrays are of `array_type`.
    """
    if verb == "copy_to" and not copies_by_source:
        return named.get("device") or args[1]
    if verb not in ("copy_to", "launch"):
        return None
    for leaf in tree_leaves((args, tuple(named.values()))):
        if isinstance(leaf, array_type):
            return backend.device_of(leaf)
    return None
