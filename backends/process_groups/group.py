"""Groups of processes: what a framework's own engine must do for one, and what is made of that.

All processes of a group join it, and then call the same functions in the same order. A barrier, a
broadcast and a gather are composed of the sum, which every engine has: a byte travels as a float32,
which holds it exactly, and the processes that send nothing add zeros. That takes four times the
bytes, of messages that are short and few.

Ranks that do different things are found before they exchange anything: gloo would end the process,
MXNet hang.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Protocol

import numpy as np

from backends.errors import ComputationError
from backends.protocol import Array

SumOnHost = Callable[[np.ndarray], np.ndarray]
"""Sums a float32 array over all processes, and blocks."""
COMPARED_EXCHANGES = 8
"""How many of the first exchanges are compared by shape: after so many a program repeats itself."""
DIGEST = 16
"""Bytes of a digest that are compared: enough that no two differing ones ever coincide."""


class GroupError(ComputationError):
    """The group broke: another process is gone, does not answer, or does something else.

    The cause lies in another process, which reports it itself if it still can.
    """


class Group(Protocol):
    """Processes that were joined by a framework's engine; this one is `rank` of `size`."""

    rank: int
    size: int
    transport: str
    """The engine in a word: `gloo`, `nccl`, `dist_sync`."""
    hosts: tuple[str, ...]
    """The name of each rank's host."""

    def sum(self, x: Array) -> Array:
        """Enqueue the sum over all processes of a value on this process's first device.

        `x` is consumed. Arrays of a tuple are one exchange. All processes give equal shapes and
        dtypes.
        """

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        """Sum a float32 array over all processes, and block until it is computed.

        Raises GroupError.
        """

    def waitall(self) -> None:
        """Block until all sums are done. Raises GroupError if one failed."""

    def close(self) -> None:
        """Leave the group in good order, together with all other processes."""


class DisagreementError(ComputationError):
    """The processes were started differently."""


def barrier(group: Group) -> None:
    """Block until all processes are here."""
    group.sum_on_host(np.zeros(1, dtype=np.float32))


def broadcast(group: Group, content: bytes) -> bytes:
    """Give rank 0's bytes to every process; what the other processes pass is ignored."""
    if group.rank != 0:
        content = b""
    # The length travels in two numbers, because a float32 is exact up to 2**24 only.
    quotient_and_remainder = divmod(len(content), 2**16)
    quotient, remainder = group.sum_on_host(np.array(quotient_and_remainder, dtype=np.float32))
    length = int(quotient) * 2**16 + int(remainder)
    return _sum_bytes(group.sum_on_host, content, start=0, length=length)


def gather(group: Group, content: bytes) -> tuple[bytes, ...]:
    """Return in every process the contents that all processes pass, by rank."""
    return _gather_by(group.sum_on_host, group.rank, group.size, content)


def agree(group: Group, statement: Mapping[str, object]) -> None:
    """Compare the statements of all processes, whose values must be fit for JSON.

    Raises DisagreementError, in every process, if they differ. Blocks until all processes call it.
    """
    texts = gather(group, json.dumps(statement, default=str).encode())
    different = differences([json.loads(text) for text in texts])
    if different:
        raise DisagreementError(f"the ranks disagree on {different}: start all of them alike")


def agree_on_exchange(
    sum_on_host: SumOnHost, rank: int, hosts: Sequence[str], number: int, arrays: Sequence[Array]
) -> None:
    """Raise DisagreementError if the processes are about to sum arrays of unequal shapes or dtypes.

    `number` is that of the exchange: only the first ones are compared. Costs one sum of a few bytes
    if the processes agree.
    """
    if number > COMPARED_EXCHANGES:
        return
    descriptions = []
    for x in arrays:
        dtype = str(x.dtype).removeprefix("torch.")
        descriptions.append(f"{dtype} {list(x.shape)}")
    shapes = ", ".join(descriptions)
    digest_bytes = hashlib.sha256(shapes.encode()).digest()[:DIGEST]
    digest = np.frombuffer(digest_bytes, np.uint8).astype(np.float32)
    # A row for each rank, of which this process fills its own.
    digests = np.zeros((len(hosts), DIGEST), dtype=np.float32)
    digests[rank] = digest
    if (sum_on_host(digests) == digest).all():
        return
    texts = _gather_by(sum_on_host, rank, len(hosts), shapes.encode())
    subject = f"what exchange {number} sums"
    statements = [{subject: text.decode()} for text in texts]
    raise DisagreementError(
        f"the ranks disagree on {differences(statements)}: start all of them alike"
    )


def differences(statements: Sequence[Mapping[str, object]]) -> str:
    """Return how the ranks' statements differ, in words; an empty string if they do not."""
    names = dict.fromkeys(chain.from_iterable(statements))
    differing_names = []
    for name in names:
        ranks_by_value: dict[str, list[int]] = {}
        for rank, statement in enumerate(statements):
            value = str(statement.get(name, "unknown"))
            ranks_by_value.setdefault(value, []).append(rank)
        if len(ranks_by_value) > 1:
            values = [f"{value} on {_ranks(ranks)}" for value, ranks in ranks_by_value.items()]
            differing_names.append(f"{name} ({'; '.join(values)})")
    return ", ".join(differing_names)


def _gather_by(sum_on_host: SumOnHost, rank: int, size: int, content: bytes) -> tuple[bytes, ...]:
    """Return the contents that all processes pass, by rank; only sums are exchanged."""
    # Each process adds its length to zeros, at its rank.
    length_at_rank = np.zeros(size, dtype=np.float32)
    length_at_rank[rank] = len(content)
    lengths = sum_on_host(length_at_rank).astype(np.int64)
    # In the same way, each process adds its content behind those of the ranks before it.
    ends = np.cumsum(lengths)
    starts = ends - lengths
    joined = _sum_bytes(sum_on_host, content, start=int(starts[rank]), length=int(ends[-1]))
    return tuple(joined[start:end] for start, end in zip(starts, ends, strict=True))


def _sum_bytes(sum_on_host: SumOnHost, content: bytes, start: int, length: int) -> bytes:
    """Return `length` bytes: each process's content at its `start`, summed over all processes."""
    # Lengths are rounded up to powers of two, because an engine may need to prepare each new one.
    exponent = max(4, (length - 1).bit_length())
    rounded_length = 2**exponent
    numbers = np.zeros(rounded_length, dtype=np.float32)
    numbers[start : start + len(content)] = np.frombuffer(content, np.uint8)
    sums = sum_on_host(numbers)[:length]
    return sums.astype(np.uint8).tobytes()


def _ranks(numbers: Sequence[int]) -> str:
    """Name ranks by their numbers: `rank 1`, or `ranks 0, 2`."""
    noun = "ranks" if len(numbers) > 1 else "rank"
    return f"{noun} {', '.join(map(str, numbers))}"
