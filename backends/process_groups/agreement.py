"""Find ranks that do different things before they exchange anything: gloo would end the process, MXNet hang."""

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

from backends.errors import ComputationError
from backends.process_groups.group import Group
from backends.process_groups.messages import SumOnHost, gather, gather_by
from backends.protocol import Array

__all__ = ["COMPARED_EXCHANGES", "DisagreementError", "agree", "agree_on_exchange", "differences"]

COMPARED_EXCHANGES = 8
"""How many of the first exchanges are compared by shape: after so many a program repeats itself."""
DIGEST = 16
"""Bytes of a digest that are compared: enough that no two differing ones ever coincide."""


class DisagreementError(ComputationError):
    """The processes were started differently."""


def agree(group: Group, statement: Mapping[str, object]) -> None:
    """Compare the statements of all processes; raises DisagreementError, in every process, if they differ.

    The values must be fit for JSON. Blocks until all processes call it.
    """
    texts = gather(group, json.dumps(statement, default=str).encode())
    different = differences([json.loads(text) for text in texts])
    if different:
        raise DisagreementError(f"the ranks disagree on {different}: start all of them alike")


def agree_on_exchange(
    sum_on_host: SumOnHost, rank: int, hosts: Sequence[str], number: int, arrays: Sequence[Array]
) -> None:
    """Compare the shapes and dtypes of one of the first exchanges, about to begin; raises DisagreementError.

    Costs one sum of a few bytes if they agree.
    """
    if number > COMPARED_EXCHANGES:
        return
    shapes = ", ".join(f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}" for x in arrays)
    digest = np.frombuffer(hashlib.sha256(shapes.encode()).digest()[:DIGEST], np.uint8).astype(np.float32)
    own = np.zeros((len(hosts), DIGEST), dtype=np.float32)
    own[rank] = digest
    if np.array_equal(sum_on_host(own), np.broadcast_to(digest, own.shape)):
        return
    texts = gather_by(sum_on_host, rank, len(hosts), shapes.encode())
    different = differences([{f"what exchange {number} sums": text.decode()} for text in texts])
    raise DisagreementError(f"the ranks disagree on {different}: start all of them alike")


def differences(statements: Sequence[Mapping[str, object]]) -> str:
    """Return how the ranks' statements differ, in words; an empty string if they do not."""
    names = dict.fromkeys(name for statement in statements for name in statement)
    parts = []
    for name in names:
        ranks: dict[str, list[int]] = {}
        for rank, statement in enumerate(statements):
            ranks.setdefault(str(statement.get(name, "unknown")), []).append(rank)
        if len(ranks) > 1:
            parts.append(f"{name} ({'; '.join(f'{value} on {_ranks(who)}' for value, who in ranks.items())})")
    return ", ".join(parts)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
