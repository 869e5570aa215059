"""Programs of ranks on JAX, each of which is a process: `python -m tests.backends.jax.ranks PROGRAM ENGINE`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import backends
from backends import BackendError, Device
from backends.jax.meeting import Meeting
from backends.process_groups import Group, GroupedBackend, join, rendezvous
from backends.process_groups.addresses import free_port
from backends.process_groups.group import COMPARED_EXCHANGES

__all__ = ["end", "start"]

DEADLINE = 120
"""Seconds after which a test that hangs fails."""
KINDS = (
    np.float32(1),
    np.ones((0, 3), np.float32),
    np.ones((2, 3), np.float64),
    np.ones(3, np.int32),
    np.ones(1, np.int64),
    np.ones((40, 50), np.float32),
)


def start(program: str, engine: str, root: Path) -> "list[subprocess.Popen[str]]":
    """Start two ranks that run a program of this module."""
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    command = [sys.executable, "-m", "tests.backends.jax.ranks", program, engine]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return [
        subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, **where, "RANK": str(rank), "PARALLEL_CORE_TIMEOUT": str(DEADLINE)},
            text=True,
            **pipes,  # type: ignore[call-overload]
        )
        for rank in range(2)
    ]


def end(ranks: "Sequence[subprocess.Popen[str]]") -> list[tuple[int, list[str], str]]:
    """Wait for ranks; return the exit status, the lines of standard output, and standard error of each."""
    found = []
    for rank in ranks:
        try:
            output, errors = rank.communicate(timeout=DEADLINE)
        finally:
            rank.kill()
        found.append((rank.returncode, output.splitlines(), errors))
    return found


def sums_all_kinds(backend: GroupedBackend, group: Group) -> None:
    """Sum a tuple of several types and shapes, compute with the sums, and sum what has no sum."""
    (device,) = backend.devices
    own = tuple(np.asarray(x * (group.rank + 1)).astype(x.dtype) for x in KINDS)
    (total,) = backend.allreduce([backend.asarray(own, device)])
    for found in backend.to_numpy(backend.launch(lambda xs: tuple(x + x for x in xs), total)):
        print(found.dtype, found.shape, found.sum())
    try:
        backend.allreduce([backend.asarray(np.ones(2, bool), device)])
    except BackendError as error:
        print(error)


def sum_while_ranks_compare(backend: GroupedBackend) -> Sequence[Device]:
    """Sum as often as ranks tell each other first what they sum; return the devices."""
    for _ in range(COMPARED_EXCHANGES):
        backend.allreduce([backend.asarray(np.ones(3, np.float32), device) for device in backend.devices])
    backend.waitall()
    return backend.devices


def sums_what_another_rank_sums_later(backend: GroupedBackend, group: Group) -> None:
    """Launch a sum on rank 0 and say so; the other rank launches it when it is told that."""
    (device,) = sum_while_ranks_compare(backend)
    if group.rank:
        input()
    (total,) = backend.allreduce([backend.asarray(np.ones(3, np.float32), device)])
    if not group.rank:
        print("launched", flush=True)
    print(backend.to_numpy(total).tolist())


def loses_a_rank(backend: GroupedBackend, group: Group) -> None:
    """Wait for what depends on a sum with a rank that is gone."""
    (device,) = sum_while_ranks_compare(backend)
    if group.rank:
        os._exit(9)
    try:
        (total,) = backend.allreduce([backend.asarray(np.ones(3, np.float32), device)])
        backend.wait(backend.launch(backend.ops.add, total, 1.0))
    except BackendError as error:
        print(type(error).__name__, error)
    os._exit(0)


def loses_a_rank_that_joins(_: GroupedBackend, __: Group) -> None:
    """Not be reached: one rank dies when all have met."""


def main() -> None:
    """Be a rank."""
    program, engine = sys.argv[1:]
    local = backends.load("jax", 1, "cpu", engine, 1)
    where = rendezvous(os.environ)
    assert where is not None
    if program == loses_a_rank_that_joins.__name__ and where.rank:
        Meeting.pass_on = lambda *_: os._exit(9)  # type: ignore[method-assign]
    try:
        backend = join(local, where)
    except BackendError as error:
        print(type(error).__name__, error)
        return
    globals()[program](backend, backend.group)
    backend.group.close()


if __name__ == "__main__":
    main()
