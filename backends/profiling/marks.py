"""What a backend's verbs write into a profile: which of them was called, with which function, for which device.

Every mark of a verb ends in a number. Where a worker thread runs the work, the run stands under a mark of the same
number, so that the time between them can be told.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial, wraps
from itertools import count
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from backends.devices import Device
from backends.protocol import Array
from backends.torch.streams.future import Announcing
from backends.torch.streams.worker import WorkerStream

__all__ = ["Mark", "Marked", "case_of", "case_text", "marking_verbs", "marking_work", "run_of", "verb_of"]

Mark: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""A framework's way of writing a named span of the calling thread into its profile."""
FindDevice: TypeAlias = Callable[..., "Device | None"]
"""A verb's name and arguments in, the device whose queue its work goes to out; None where there is no single one."""

# MXNet writes quotation marks into its JSON as they are, and PyTorch calls what is not ASCII "unknown".
READABLE = " '()*+,-./:<=>?@[]_|"
VERBS = ("launch", "wait", "waitall", "copy_to", "allreduce")

_CALL = re.compile(rf"((?:{'|'.join(VERBS)})\b.*?)(?: on (\w+:\d+))? #(\d+)")

_numbers = count(1)
_calling = threading.local()


class Marked(NamedTuple):
    """A mark, read: a verb and what it was called with, or the work that it caused."""

    name: str
    device: str
    queue: str
    number: int


def case_text(name: str) -> str:
    """Return the text of the mark under which a case is repeated."""
    return f"case {quote(name, safe=READABLE)}"


def case_of(text: str) -> str | None:
    """Return the case of a mark's text; None for other marks."""
    return unquote(text.removeprefix("case ")) if text.startswith("case ") else None


def verb_of(text: str) -> Marked | None:
    """Read the mark of a verb's call; None for other marks. The queue is empty."""
    found = _CALL.fullmatch(text)
    return found and Marked(found[1], found[2] or "", "", int(found[3]))


def run_of(text: str) -> Marked | None:
    """Read the mark of work on a worker; None for other marks."""
    found = re.fullmatch(r"run (.*) on (\w+:\d+) (\w+) #(\d+)", text)
    return found and Marked(found[1], found[2], found[3], int(found[4]))


@contextmanager
def marking_verbs(backend: object, mark: Mark, device_of: FindDevice) -> Iterator[None]:
    """Meanwhile, let every call of the backend's verbs stand under a mark.

    The verbs are shadowed on this one object, so that without a profile they cost nothing more.
    """
    shadowed = {name: _under_mark(getattr(backend, name), name, mark, device_of) for name in VERBS}
    vars(backend).update(shadowed)
    try:
        yield
    finally:
        for name, verb in shadowed.items():
            # After a failure a verb that refuses stands here.
            if vars(backend)[name] is verb:
                del vars(backend)[name]


@contextmanager
def marking_work(streams: "tuple[WorkerStream, ...]", mark: Mark) -> Iterator[None]:
    """Meanwhile, let all that is submitted to the streams run under marks with the number of the verb's call."""
    with ExitStack() as all_streams:
        for stream in streams:
            all_streams.enter_context(stream.submitting(partial(_run_under_mark, mark, stream.name)))
        yield


def _under_mark(verb: Callable[..., Any], name: str, mark: Mark, device_of: FindDevice) -> Callable[..., Any]:
    @wraps(verb)
    def call(*args: Array, **named: Array) -> Any:
        around = getattr(_calling, "number", 0)
        number = _calling.number = next(_numbers)
        told = f"{name} {_name_of(args[0])}" if name == "launch" else name
        device = device_of(name, *args, **named)
        try:
            with mark(f"{told}{f' on {device}' if device else ''} #{number}"):
                return verb(*args, **named)
        finally:
            # Work that is submitted under no mark must not take the number of the last one.
            _calling.number = around

    return call


def _run_under_mark(mark: Mark, queue: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    text = f"run {_name_of(fn)} on {queue} #{getattr(_calling, 'number', 0)}"

    def run(*args: Any) -> Any:
        with mark(text):
            return fn(*args)

    if isinstance(fn, Announcing):
        announcing = fn.function

        def run_announcing(announce: Any, *args: Any) -> Any:
            with mark(text):
                return announcing(announce, *args)

        return Announcing(run_announcing)
    return run


def _name_of(fn: Any) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    if isinstance(fn, Announcing):
        fn = fn.function
    return quote(getattr(fn, "__name__", type(fn).__name__), safe=READABLE)
