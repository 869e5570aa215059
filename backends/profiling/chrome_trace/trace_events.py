"""The events of a Chrome trace, one by one, however the file ends.

Profilers write these files piece by piece, and a program that dies leaves a piece. So the list of events is never
decoded as a whole: what lies between two places where one event ends and the next begins is decoded at once, which is
fast, and where that fails, event by event, which loses only those that are damaged.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, final

import msgspec

__all__ = ["NO_ARGUMENTS", "Arguments", "Event", "Surroundings", "read_events"]

PHASES = frozenset("XBEbeM")
LARGEST_EVENT = 1 << 18
"""Characters after which an event that has not ended is damaged."""
LARGEST_PROPERTY = 1 << 26
BOUNDARY = re.compile(r"\}[ \t\r\n]*,[ \t\r\n]*\{")
GAP = re.compile(r"[ \t\r\n,]*")
VALUE = json.JSONDecoder()
EXACT_VALUE = json.JSONDecoder(parse_float=Decimal)


class Event(msgspec.Struct, gc=False):
    """One event as it stands in the file; times are in microseconds, and none is rounded."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: int | Decimal | None = None
    dur: int | Decimal | None = None
    id: int | str | None = None
    id2: dict[str, int | str] | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


EVENT = msgspec.json.Decoder(Event)
ENCODER = msgspec.json.Encoder(decimal_format="number")
EVENTS = msgspec.json.Decoder(list[Event])


@final
class Arguments(Mapping[str, Any]):
    """The arguments of an event, decoded when they are first asked for: most never are."""

    __slots__ = ("_held",)

    def __init__(self, raw: bytes) -> None:
        self._held: bytes | Mapping[str, Any] = raw

    def __getitem__(self, key: str) -> Any:
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self) -> str:
        return repr(self._values())

    def _values(self) -> Mapping[str, Any]:
        if isinstance(self._held, bytes):
            # The standard library's decoder takes lone surrogates, which msgspec passes over and then refuses.
            try:
                decoded = json.loads(self._held or b"{}")
            except (ValueError, RecursionError):
                decoded = {}
            self._held = decoded if isinstance(decoded, dict) else {}
        return self._held


NO_ARGUMENTS = Arguments(b"")


@dataclass
class Surroundings:
    """What stands in a file beside its events, filled in while they are read."""

    properties: dict[str, Any] = field(default_factory=dict)
    has_list: bool = False
    """Whether a list of events began."""
    cut: bool = False
    """Whether the file ends within an event, or before its object does."""
    damaged: int = 0
    """How many events were no JSON, or had fields of other types."""


def read_events(blocks: Iterator[str], beside: Surroundings) -> Iterator[list[Event]]:
    """Yield the events of a trace in the order of the file, some at a time.

    Several documents may follow each other, and MXNet appends to a closed one: a comma, more events, and an end.
    Raises ValueError where the text does not begin as a trace does.
    """
    text = _Text(blocks)
    first = True
    while opening := text.peek(over_commas=False):
        text.at += 1
        if opening in "[,":
            in_list = True
        elif opening == "{":
            in_list = _read_properties(text, beside)
        elif first:
            raise ValueError(f"it is no JSON: it begins with {text.text[text.at - 1 :][:10]!r}")
        else:
            return
        first = False
        if in_list:
            beside.has_list = True
            yield from _read_list(text, beside)
            # A bare list may end without its bracket: the format allows it.
            if text.peek(over_commas=False) in (",", "}") or opening != "[":
                _read_properties(text, beside)


@final
class _Text:
    """The part of a text that is in memory, and the place up to which it has been read."""

    def __init__(self, blocks: Iterator[str]) -> None:
        self._blocks = blocks
        self.text = ""
        self.at = 0
        self.ended = False

    def grow(self, least: int = 1) -> bool:
        """Take in at least so many characters more; say whether there were any."""
        if self.ended:
            return False
        taken = []
        missing = least
        while missing > 0 and not self.ended:
            block = next(self._blocks, None)
            self.ended = block is None
            taken.append(block or "")
            missing -= len(taken[-1])
        self.text = self.text[self.at :] + "".join(taken)
        self.at = 0
        return missing < least

    def peek(self, over_commas: bool = True) -> str:
        """Go to the next character that is neither white space nor, where told, a comma; it is empty at the end."""
        while True:
            gap = GAP.match(self.text, self.at)
            assert gap is not None
            comma = -1 if over_commas else gap[0].find(",")
            self.at = gap.end() if comma < 0 else gap.start() + comma
            if self.at < len(self.text) or not self.grow():
                return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        """Read one JSON value. Raises ValueError where there is none, or none that ends."""
        while True:
            try:
                value, end = VALUE.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                size = len(self.text) - self.at
                if size > LARGEST_PROPERTY or not self.grow(size):
                    raise ValueError("no JSON") from error
                continue
            if end == len(self.text) and self.grow():
                continue
            self.at = end
            return value

    def leave(self) -> None:
        """Read nothing more."""
        self.text, self.at, self.ended = "", 0, True


def _read_properties(text: _Text, beside: Surroundings) -> bool:
    # Up to the list of events (True), or over the object's end.
    while (following := text.peek()) and following != "}":
        try:
            name = text.value()
            colon = text.peek()
            text.at += 1
            if not isinstance(name, str) or colon != ":":
                break
            if text.peek() == "[" and name == "traceEvents":
                text.at += 1
                return True
            beside.properties[name] = text.value()
        except ValueError:
            break
    if following == "}":
        text.at += 1
        return False
    beside.cut = True
    text.leave()
    return False


def _read_list(text: _Text, beside: Surroundings) -> Iterator[list[Event]]:
    # Up to the list's end, which is passed over.
    while following := text.peek():
        if following == "]":
            text.at += 1
            return
        end = _last_end(text)
        try:
            batch = EVENTS.decode(f"[{text.text[text.at : end]}]")
            text.at = end
        except (msgspec.MsgspecError, ValueError, RecursionError):
            batch = []
        yield batch or _read_singly(text, beside)


def _last_end(text: _Text) -> int:
    # Where the last event ends after which another one surely begins; where there is none, the present place.
    end = len(text.text)
    for _ in range(100):
        end = text.text.rfind("}", text.at, end)
        if end < 0:
            break
        if BOUNDARY.match(text.text, end):
            return end + 1
    return text.at


def _read_singly(text: _Text, beside: Surroundings) -> list[Event]:
    # Up to the list's end, or to where an event may be incomplete because its rest has not been read.
    events = []
    while text.peek() not in ("]", ""):
        if len(text.text) - text.at < LARGEST_EVENT and text.grow(LARGEST_EVENT):
            break
        try:
            value, end = EXACT_VALUE.raw_decode(text.text, text.at)
        except (ValueError, RecursionError):
            _pass_over(text, beside)
            continue
        text.at = end
        try:
            if isinstance(value, dict) and value.get("ph") not in PHASES:
                continue
            # What is not finite becomes null in between.
            events.append(EVENT.decode(ENCODER.encode(value)))
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
            beside.damaged += 1
    return events


def _pass_over(text: _Text, beside: Surroundings) -> None:
    # To the next event; the last one is not damaged, but cut off, and peek() then finds the file's end.
    following = BOUNDARY.search(text.text, text.at)
    if following is None:
        beside.cut = beside.cut or text.ended
        beside.damaged += not text.ended
        text.at = len(text.text)
    else:
        beside.damaged += 1
        text.at = following.end() - 1
