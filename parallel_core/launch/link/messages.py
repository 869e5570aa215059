"""What launches tell each other: lines of JSON, one message each; nothing in them is run or unpickled.

The scheduler's launch is the hub. A launch says Hello, is welcomed, and starts its process when all have joined.
"""

import asyncio
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

__all__ = [
    "FROM_HUB",
    "FROM_MEMBER",
    "HELLO",
    "LONGEST_CAUSE",
    "Advanced",
    "Done",
    "End",
    "FromHub",
    "FromMember",
    "Hello",
    "LinkError",
    "Refused",
    "Role",
    "Start",
    "Trouble",
    "Welcome",
    "printable",
    "receive",
    "send",
]

Role: TypeAlias = Literal["scheduler", "server", "worker"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Host: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
LONGEST_CAUSE = 1000
Cause: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_CAUSE)]
Received = TypeVar("Received")


class LinkError(Exception):
    """What came is no message of the link."""


class Hello(msgspec.Struct, tag=True, frozen=True):
    """Somebody started a launch of this role on this host, for a job of so many workers and servers."""

    role: Role
    host: Host
    workers: Count
    servers: Count


class Welcome(msgspec.Struct, tag=True, frozen=True):
    """The launch has a place in the job: it is the index-th of its role. Not all have joined yet."""

    index: Count


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The launch has no place in the job, for this reason. The job goes on without it."""

    reason: Cause


class Start(msgspec.Struct, tag=True, frozen=True):
    """All have joined. The launch's process is the local_rank-th of local_size with its role on its host."""

    index: Count
    local_rank: Count
    local_size: Count


class Advanced(msgspec.Struct, tag=True, frozen=True):
    """The launch's process has done something; a worker has launched so many exchanges, and may know its rank."""

    exchanges: Annotated[int, msgspec.Meta(ge=0)] = 0
    rank: Count | None = None


class Done(msgspec.Struct, tag=True, frozen=True):
    """The launch's process ended well."""


class Trouble(msgspec.Struct, tag=True, frozen=True):
    """The launch's process failed. `by_others`: it only noticed that another one is gone."""

    cause: Cause
    by_others: bool = False


class End(msgspec.Struct, tag=True, frozen=True):
    """The job is over: well where there is no cause. `stacks`: say what the process hangs in before it is ended."""

    cause: Cause | None
    stacks: bool = False


FromMember: TypeAlias = Advanced | Done | Trouble
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
    except ValueError as error:
        # Both a line beyond the limit and one that is no message.
        raise LinkError(str(error)) from error


def send(writer: asyncio.StreamWriter, message: FromHub | FromMember | Hello) -> None:
    """Send a message without waiting for it to arrive; a connection that ended is noticed by its reader."""
    if not writer.is_closing():
        writer.write(msgspec.json.encode(message) + b"\n")


def printable(text: str) -> str:
    """Return a text from elsewhere in one line of at most LONGEST_CAUSE letters, which can do nothing to a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:LONGEST_CAUSE]
