"""What launches tell each other: lines of JSON, one message each; nothing in them is run or unpickled.

The scheduler's launch is the hub. A launch says Hello, is welcomed, starts its process when all have joined, and then
passes on what its agent says of it (`reports.py`).
"""

import asyncio
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from parallel_core.launch.reports import Ended, Printed, Reported, Unstartable

__all__ = [
    "FROM_HUB",
    "FROM_MEMBER",
    "HELLO",
    "LONGEST_CAUSE",
    "LONGEST_LINE",
    "End",
    "FromHub",
    "FromMember",
    "Hello",
    "Leave",
    "LinkError",
    "Refused",
    "Role",
    "Start",
    "Welcome",
    "printable",
    "receive",
    "send",
]

LONGEST_LINE = 1 << 14
"""Bytes; who sends a longer line is hung up on."""
LONGEST_CAUSE = 1000

Role: TypeAlias = Literal["scheduler", "server", "worker"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Cause: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_CAUSE)]
Received = TypeVar("Received")


class LinkError(Exception):
    """What came is no message of the link."""


class Hello(msgspec.Struct, tag=True, frozen=True):
    """Somebody started a launch of this role on this host, for a job of so many workers and servers."""

    role: Role
    host: Name
    workers: Count
    servers: Count


class Welcome(msgspec.Struct, tag=True, frozen=True):
    """The launch has a place in the job. Not all have joined yet."""


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The launch has no place in the job, for this reason. The job goes on without it."""

    reason: Cause


class Start(msgspec.Struct, tag=True, frozen=True):
    """All have joined. The launch's process is called so; `slots` are the numbers of ranks on the hosts, in order."""

    name: Name
    slots: tuple[Count, ...]


class Leave(msgspec.Struct, tag=True, frozen=True):
    """The launch itself gives up, for this reason."""

    reason: Cause


class End(msgspec.Struct, tag=True, frozen=True):
    """The job is over, with this exit status for everyone; 0 has no cause.

    `stacks`: a rank is to say what it is doing before it is ended.
    """

    status: Annotated[int, msgspec.Meta(ge=0, le=255)]
    cause: Cause = ""
    stacks: bool = False


FromMember: TypeAlias = Reported | Printed | Ended | Unstartable | Leave
FromHub: TypeAlias = Welcome | Refused | Start | End

HELLO: msgspec.json.Decoder[Hello] = msgspec.json.Decoder(Hello)
FROM_MEMBER: msgspec.json.Decoder[FromMember] = msgspec.json.Decoder(FromMember)
FROM_HUB: msgspec.json.Decoder[FromHub] = msgspec.json.Decoder(FromHub)


async def receive(reader: asyncio.StreamReader, decoder: msgspec.json.Decoder[Received]) -> Received | None:
    """Wait for the next message; None where the connection ended. Raises LinkError where what came is none.

    No more is read than the reader's limit.
    """
    try:
        line = await reader.readline()
        return decoder.decode(line) if line.endswith(b"\n") else None
    except OSError:
        return None
    except (ValueError, RecursionError) as error:
        # Both a line beyond the limit and one that is no message.
        raise LinkError(str(error)) from error


def send(writer: asyncio.StreamWriter, message: FromHub | FromMember | Hello) -> None:
    """Send a message without waiting for it to arrive; a connection that ended is noticed by its reader."""
    if not writer.is_closing():
        writer.write(msgspec.json.encode(message) + b"\n")


def printable(text: str) -> str:
    """Return a text from elsewhere in one line of at most LONGEST_CAUSE letters, which can do nothing to a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:LONGEST_CAUSE]
