"""Ranks that do different things are found before they exchange anything: gloo would end the process, MXNet hang."""

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

from backends.errors import ComputationError
from backends.process_groups.group import Group
from backends.process_groups.messages import SumOnHost, gather, gather_by

__all__ = ["COMPARED_EXCHANGES", "DisagreementError", "agree", "agree_on_exchange", "differences"]

COMPARED_EXCHANGES = 8
"""The first exchanges, whose shapes are compared: a program that has gone through so many repeats itself."""
DIGEST = 16
"""Bytes of a digest that are compared; more would not make a coincidence less likely in anyone's lifetime."""


class DisagreementError(ComputationError):
    """The processes were started differently."""


def agree(group: Group, said: Mapping[str, object]) -> None:
    """Compare what every process says of itself; raises DisagreementError, in every process, where they differ.

    The values must be fit for JSON. Blocks until all have said theirs.
    """
    texts = gather(group, json.dumps(said, default=str).encode())
    found = differences([json.loads(text) for text in texts])
    if found:
        raise DisagreementError(f"the ranks disagree on {found}: start all of them alike")


def agree_on_exchange(sum_on_host: SumOnHost, rank: int, hosts: Sequence[str], number: int, shapes: str) -> None:
    """Compare the shapes and dtypes of an exchange that is about to begin; raises DisagreementError.

    Costs one sum of a few bytes where they agree.
    """
    digest = np.frombuffer(hashlib.sha256(shapes.encode()).digest()[:DIGEST], np.uint8).astype(np.float32)
    own = np.zeros((len(hosts), DIGEST), dtype=np.float32)
    own[rank] = digest
    if np.array_equal(sum_on_host(own), np.broadcast_to(digest, own.shape)):
        return
    texts = gather_by(sum_on_host, rank, len(hosts), shapes.encode())
    found = differences([{f"what exchange {number} sums": text.decode()} for text in texts])
    raise DisagreementError(f"the ranks disagree on {found}: start all of them alike")


def differences(said: Sequence[Mapping[str, object]]) -> str:
    """Say in words where some ranks' statements differ; nothing where they do not."""
    names = dict.fromkeys(name for one in said for name in one)
    found = []
    for name in names:
        ranks: dict[str, list[int]] = {}
        for rank, one in enumerate(said):
            ranks.setdefault(str(one.get(name, "unknown")), []).append(rank)
        if len(ranks) > 1:
            found.append(f"{name} ({'; '.join(f'{value} on {_ranks(who)}' for value, who in ranks.items())})")
    return ", ".join(found)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
