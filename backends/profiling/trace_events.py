"""Read the events of a Chrome trace some at a time, however the file ends.

Profilers write these files piece by piece, and a program that dies leaves a piece. So the list of
events is never decoded as a whole: the text between two places where one event ends and the next
begins is decoded at once, which is fast, and if that fails, event by event, which loses only those
that are damaged.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, final

import msgspec

BLOCK_BYTES = 1 << 20
"""How many are read at a time."""
GZIP_MAGIC = b"\x1f\x8b"
PHASES = frozenset("XBEbeM")
MAX_EVENT_CHARACTERS = 1 << 18
"""An event that has not ended after so many is damaged."""
MAX_PROPERTY_CHARACTERS = 1 << 26
BOUNDARY = re.compile(r"\}[ \t\r\n]*,[ \t\r\n]*\{")
GAP = re.compile(r"[ \t\r\n,]*")
VALUE = json.JSONDecoder()
EXACT_VALUE = json.JSONDecoder(parse_float=Decimal)


class Event(msgspec.Struct, gc=False):
    """One event as it stands in the file; times are texts, in microseconds."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    id: int | str | None = None
    id2: dict[str, int | str] | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


EVENT = msgspec.json.Decoder(Event)
ENCODER = msgspec.json.Encoder(decimal_format="number")
EVENTS = msgspec.json.Decoder(list[Event])
ERRORS = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)
"""What decoding damaged text raises."""


@dataclass
class Document:
    """What a file holds beside its events, filled in while they are read."""

    properties: dict[str, Any] = field(default_factory=dict)
    contradicted: set[str] = field(default_factory=set)
    """The names of properties that the file gives twice, with different values."""
    cut: bool = False
    """Whether the file ends within an event, or before its object does."""
    damaged: int = 0
    """How many events were no JSON, or had fields of other types."""


def text_blocks(path: Path) -> Iterator[str]:
    """Yield a file's text; bytes that are not UTF-8 become U+FFFD, and a compressed file may be cut
    off anywhere.

    Raises OSError if the file cannot be read, and ValueError if nothing of it can be decompressed.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    with path.open("rb") as stream:
        is_compressed = stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
        for block in (
            _inflated(stream) if is_compressed else iter(partial(stream.read, BLOCK_BYTES), b"")
        ):
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def read_events(blocks: Iterator[str], document: Document) -> Iterator[list[Event]]:
    """Yield the events of a trace in the order of the file, some at a time.

    Several documents may follow each other, and MXNet appends to a closed one: a comma, more
    events, and an end. Raises ValueError if the text does not begin as a trace does.
    """
    text = _Text(blocks)
    first = True
    while opening := text.peek(skip_commas=False):
        text.at += 1
        if opening in "[,":
            in_list = True
        elif opening == "{":
            in_list = _read_properties(text, document)
        elif first:
            raise ValueError(f"it is no JSON: it begins with {text.text[text.at - 1 :][:10]!r}")
        else:
            return
        first = False
        if in_list:
            yield from _read_list(text, document)
            # A bare list may end without its bracket: the format allows it.
            if text.peek(skip_commas=False) in (",", "}") or opening != "[":
                _read_properties(text, document)


@final
class _Text:
    """The part of a text that is in memory, and the place up to which it has been read."""

    def __init__(self, blocks: Iterator[str]) -> None:
        self._blocks = blocks
        self.text = ""
        self.at = 0
        self.ended = False

    def grow(self, characters: int = 1) -> bool:
        """Append at least so many characters, as far as there are; return whether there were
        any.
        """
        taken: list[str] = []
        missing = characters
        while missing > 0 and not self.ended:
            block = next(self._blocks, None)
            self.ended = block is None
            taken.append(block or "")
            missing -= len(taken[-1])
        if taken:
            self.text = self.text[self.at :] + "".join(taken)
            self.at = 0
        return missing < characters

    def peek(self, skip_commas: bool = True) -> str:
        """Go to the next character that is neither white space nor, with `skip_commas`, a comma; ""
        is the end.
        """
        while True:
            gap = GAP.match(self.text, self.at)
            assert gap is not None
            comma = -1 if skip_commas else gap[0].find(",")
            self.at = gap.end() if comma < 0 else gap.start() + comma
            if self.at < len(self.text) or not self.grow():
                return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        """Read one JSON value. Raises ValueError if there is none, or none that ends."""
        while True:
            try:
                value, end = VALUE.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                size = len(self.text) - self.at
                if size > MAX_PROPERTY_CHARACTERS or not self.grow(size):
                    raise ValueError("no JSON") from error
                continue
            if end == len(self.text) and self.grow():
                continue
            self.at = end
            return value

    def close(self) -> None:
        """Read nothing more."""
        self.text, self.at, self.ended = "", 0, True


def _read_properties(text: _Text, document: Document) -> bool:
    """Read up to the list of events (True), or past the object's end (False)."""
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
            value = text.value()
            if document.properties.setdefault(name, value) != value:
                document.contradicted.add(name)
        except ValueError:
            break
    if following == "}":
        text.at += 1
        return False
    document.cut = True
    text.close()
    return False


def _read_list(text: _Text, document: Document) -> Iterator[list[Event]]:
    """Read past the list's end."""
    while following := text.peek():
        if following == "]":
            text.at += 1
            return
        end = _last_end(text)
        try:
            batch = EVENTS.decode(f"[{text.text[text.at : end]}]")
            text.at = end
        except ERRORS:
            batch = []
        yield batch or _read_singly(text, document)


def _last_end(text: _Text) -> int:
    """Return where the last event ends that another one surely follows; the present place if there
    is none.
    """
    end = len(text.text)
    for _ in range(100):
        end = text.text.rfind("}", text.at, end)
        if end < 0:
            break
        if BOUNDARY.match(text.text, end):
            return end + 1
    return text.at


def _read_singly(text: _Text, document: Document) -> list[Event]:
    """Read up to the list's end, or to an event that may be incomplete because its rest has not
    been read.
    """
    events = []
    while text.peek() not in ("]", ""):
        if len(text.text) - text.at < MAX_EVENT_CHARACTERS and text.grow(MAX_EVENT_CHARACTERS):
            break
        try:
            value, text.at = EXACT_VALUE.raw_decode(text.text, text.at)
        except (ValueError, RecursionError):
            _skip_damaged(text, document)
            continue
        try:
            if not isinstance(value, dict) or value.get("ph") in PHASES:
                # Encoding turns what is not finite into null.
                events.append(EVENT.decode(ENCODER.encode(value)))
        except ERRORS:
            document.damaged += 1
    return events


def _skip_damaged(text: _Text, document: Document) -> None:
    """Go to the next event; a last one is not damaged but cut off, and `peek` then finds the file's
    end.
    """
    following = BOUNDARY.search(text.text, text.at)
    if following is None:
        document.cut = document.cut or text.ended
        document.damaged += not text.ended
        text.at = len(text.text)
    else:
        document.damaged += 1
        text.at = following.end() - 1


def _inflated(compressed: BinaryIO) -> Iterator[bytes]:
    stream, has_data = gzip.GzipFile(fileobj=compressed), False
    try:
        while block := stream.read1(BLOCK_BYTES):
            has_data = True
            yield block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        if not has_data:
            raise ValueError(f"its compressed data are damaged ({error})") from error
