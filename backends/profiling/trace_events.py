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
from pathlib import Path
from typing import Any, BinaryIO, final

import msgspec

from backends.profiling.doubts import Doubt

BLOCK_BYTES = 1 << 20
"""The number of bytes that are read at a time."""
GZIP_MAGIC = b"\x1f\x8b"
PHASES = frozenset("XBEbeM")
MAX_EVENT_CHARACTERS = 1 << 18
"""An event that has not ended after this number of characters is damaged."""
MAX_PROPERTY_CHARACTERS = 1 << 26
BOUNDARY = re.compile(r"\}[ \t\r\n]*,[ \t\r\n]*\{")
END_OF_LIST = re.compile(r"\}\s*(?P<bracket>\])\s*(?:,[^\[\]]*)?\}?\s*\Z")
WHITE_SPACE = re.compile(r"[ \t\r\n]*")
WHITE_SPACE_AND_COMMAS = re.compile(r"[ \t\r\n,]*")
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
    """The number of events that were no JSON, or had fields of other types."""

    def doubts(self) -> Iterator[Doubt]:
        """Yield a doubt for each fault of the file's text."""
        if self.cut:
            yield Doubt("cut-off", "The file ends before its events do: it was cut off.")
        if self.damaged:
            yield Doubt("damaged", f"{events_in_words(self.damaged)} could not be read, left out.")


def events_in_words(count: int) -> str:
    """Return a number of events in words: `1 event`, `2,000 events`."""
    return f"{count:,} event{'' if count == 1 else 's'}"


def text_blocks(path: Path) -> Iterator[str]:
    """Yield a file's text, a block at a time; bytes that are not UTF-8 become U+FFFD.

    A compressed file may be cut off anywhere. Raises OSError if the file cannot be read, and
    ValueError if nothing of it can be decompressed.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    with path.open("rb") as stream:
        is_compressed = stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
        blocks = _inflated(stream) if is_compressed else _read_blocks(stream)
        for block in blocks:
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def read_events(blocks: Iterator[str], document: Document) -> Iterator[list[Event]]:
    """Yield the events of a trace in the order of the file, some at a time.

    Several documents may follow each other, and MXNet appends to a closed one: a comma, more
    events, and an end. Raises ValueError if the text does not begin as a trace does.
    """
    text = _Text(blocks)
    is_first = True
    while opening := text.peek(skip_commas=False):
        beginning = text.text[text.at :][:10]
        text.at += 1
        if opening in "[,":
            is_in_list = True
        elif opening == "{":
            is_in_list = _read_properties(text, document)
        elif is_first:
            raise ValueError(f"it is no JSON: it begins with {beginning!r}")
        else:
            return
        is_first = False
        if is_in_list:
            yield from _read_list(text, document)
            # Behind the list, the object goes on. A bare list may end without its bracket: the
            # format allows it.
            is_bare = opening == "["
            if not is_bare or text.peek(skip_commas=False) in (",", "}"):
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
        """Append at least this number of characters, or all that remain.

        Returns whether any remained. What has been read is forgotten.
        """
        blocks: list[str] = []
        missing = characters
        while missing > 0 and not self.ended:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
            else:
                blocks.append(block)
                missing -= len(block)
        if blocks:
            self.text = self.text[self.at :] + "".join(blocks)
            self.at = 0
        return missing < characters

    def peek(self, skip_commas: bool = True) -> str:
        """Go to the next character that is no white space, and return it; "" at the text's end.

        With `skip_commas` commas count as white space.
        """
        gap = WHITE_SPACE_AND_COMMAS if skip_commas else WHITE_SPACE
        while True:
            match = gap.match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            if self.at < len(self.text) or not self.grow():
                return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        """Read one JSON value. Raises ValueError if there is none, or none that ends."""
        while True:
            try:
                value, end = VALUE.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                # The value may go on behind the text in memory, which is doubled then.
                size = len(self.text) - self.at
                if size > MAX_PROPERTY_CHARACTERS or not self.grow(size):
                    raise ValueError("no JSON") from error
                continue
            # A number that ends with the text in memory may have more digits behind it.
            if end == len(self.text) and self.grow():
                continue
            self.at = end
            return value

    def close(self) -> None:
        """Read nothing more."""
        self.text, self.at, self.ended = "", 0, True


def _read_properties(text: _Text, document: Document) -> bool:
    """Read an object's properties up to the list of events, or past the object's end.

    Returns whether the list of events follows.
    """
    while (following := text.peek()) not in ("}", ""):
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
        except ValueError:
            break
        first_value = document.properties.setdefault(name, value)
        if value != first_value:
            document.contradicted.add(name)
    if following == "}":
        text.at += 1
    else:
        # The object is damaged, or does not end.
        document.cut = True
        text.close()
    return False


def _read_list(text: _Text, document: Document) -> Iterator[list[Event]]:
    """Yield the events of a list, some at a time, and read past the list's end."""
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
        # Without a batch, an event is damaged, or none is surely followed by another one.
        yield batch or _read_singly(text, document)


def _last_end(text: _Text) -> int:
    """Return where the last event in memory ends that another event surely follows.

    Returns the present place if there is none.
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
    """Read event by event, up to the list's end or to an event that may not be in memory whole."""
    events = []
    while text.peek() not in ("]", ""):
        # With more text, many events may be decoded at once again.
        is_short = len(text.text) - text.at < MAX_EVENT_CHARACTERS
        if is_short and text.grow(BLOCK_BYTES):
            break
        try:
            value, text.at = EXACT_VALUE.raw_decode(text.text, text.at)
        except (ValueError, RecursionError):
            _skip_damaged(text, document)
            continue
        try:
            if isinstance(value, dict) and value.get("ph") not in PHASES:
                continue
            # Encoding turns what is not finite into null.
            events.append(EVENT.decode(ENCODER.encode(value)))
        except ERRORS:
            document.damaged += 1
    return events


def _skip_damaged(text: _Text, document: Document) -> None:
    """Go to the next event in memory, or to the end of what is in memory if there is none.

    The event that is passed over is damaged; or cut off, if the file ends with it.
    """
    following = BOUNDARY.search(text.text, text.at)
    if following is not None:
        document.damaged += 1
        text.at = following.end() - 1
    elif text.ended and (end_of_list := END_OF_LIST.search(text.text, text.at)):
        # The last event is damaged, and the list goes on to its end.
        document.damaged += 1
        text.at = end_of_list.start("bracket")
    elif text.ended:
        document.cut = True
        text.at = len(text.text)
    else:
        document.damaged += 1
        text.at = len(text.text)


def _read_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file, a block at a time."""
    while block := stream.read(BLOCK_BYTES):
        yield block


def _inflated(compressed: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file that gzip compressed, a block at a time, up to a damage.

    Raises ValueError if there is nothing before the damage.
    """
    stream = gzip.GzipFile(fileobj=compressed)
    has_data = False
    try:
        while block := stream.read1(BLOCK_BYTES):
            has_data = True
            yield block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        if not has_data:
            raise ValueError(f"its compressed data are damaged ({error})") from error
