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
from typing import Protocol, TypeAlias

import numpy as np

from backends.errors import ComputationError
from backends.protocol import Array

SumOnHost: TypeAlias = Callable[[np.ndarray], np.ndarray]
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
    high_and_low = np.array(divmod(len(content), 2**16), dtype=np.float32)
    high, low = group.sum_on_host(high_and_low)
    return _sum_bytes(group.sum_on_host, content, 0, int(high) * 2**16 + int(low))


def gather(group: Group, content: bytes) -> tuple[bytes, ...]:
    """Give every process what each of them passes, by rank."""
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
    """Compare the shapes and dtypes of one of the first exchanges, which is about to begin.

    Costs one sum of a few bytes if they agree. Raises DisagreementError if they do not.
    """
    if number > COMPARED_EXCHANGES:
        return
    shapes = ", ".join(f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}" for x in arrays)
    digest_bytes = hashlib.sha256(shapes.encode()).digest()[:DIGEST]
    digest = np.frombuffer(digest_bytes, np.uint8).astype(np.float32)
    # A row for each rank: this one fills its own.
    digests = np.zeros((len(hosts), DIGEST), dtype=np.float32)
    digests[rank] = digest
    if (sum_on_host(digests) == digest).all():
        return
    texts = _gather_by(sum_on_host, rank, len(hosts), shapes.encode())
    different = differences([{f"what exchange {number} sums": text.decode()} for text in texts])
    raise DisagreementError(f"the ranks disagree on {different}: start all of them alike")


def differences(statements: Sequence[Mapping[str, object]]) -> str:
    """Return how the ranks' statements differ, in words; an empty string if they do not."""
    names = dict.fromkeys(name for statement in statements for name in statement)
    different = []
    for name in names:
        ranks_by_value: dict[str, list[int]] = {}
        for rank, statement in enumerate(statements):
            value = str(statement.get(name, "unknown"))
            ranks_by_value.setdefault(value, []).append(rank)
        if len(ranks_by_value) > 1:
            values = [f"{value} on {_ranks(ranks)}" for value, ranks in ranks_by_value.items()]
            different.append(f"{name} ({'; '.join(values)})")
    return ", ".join(different)


def _gather_by(sum_on_host: SumOnHost, rank: int, size: int, content: bytes) -> tuple[bytes, ...]:
    """Give every process what each of them passes, by a sum alone."""
    lengths = np.zeros(size, dtype=np.float32)
    lengths[rank] = len(content)
    ends = np.cumsum(sum_on_host(lengths).astype(np.int64))
    starts = ends - np.diff(ends, prepend=0)
    joined = _sum_bytes(sum_on_host, content, int(starts[rank]), int(ends[-1]))
    return tuple(joined[start:end] for start, end in zip(starts, ends, strict=True))


def _sum_bytes(sum_on_host: SumOnHost, content: bytes, start: int, length: int) -> bytes:
    """Lay this process's bytes from `start` on into `length` zeros, and sum over all processes."""
    # Lengths are rounded up, because an engine may need to prepare each new one.
    rounded = 1 << max(4, (length - 1).bit_length())
    numbers = np.zeros(rounded, dtype=np.float32)
    numbers[start : start + len(content)] = np.frombuffer(content, np.uint8)
    return sum_on_host(numbers)[:length].astype(np.uint8).tobytes()


def _ranks(numbers: Sequence[int]) -> str:
    noun = "ranks" if len(numbers) > 1 else "rank"
    return f"{noun} {', '.join(map(str, numbers))}"
