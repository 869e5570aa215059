"""JAX's groups of processes: their sums in two processes, and what a rank finds when the other one dies.

A rank is `python -m tests.backends.jax.test_process_group PROGRAM ENGINE`, for a program of this module.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import backends
from backends import BackendError, Device
from backends.jax.meeting import Meeting
from backends.jax.process_group import by_another_rank
from backends.process_groups import Group, GroupedBackend, join, rendezvous
from backends.process_groups.addresses import free_port
from backends.process_groups.group import COMPARED_EXCHANGES

DEADLINE = 120
"""Seconds after which a test that hangs fails."""
GONE = "GroupError another rank is gone or does not answer (gloo: "


@pytest.fixture(autouse=True)
def jax_is_there(require: Callable[[str], None]) -> None:
    require("jax")


def start(program: Callable[..., None], engine: str, root: Path) -> "list[subprocess.Popen[str]]":
    """Start two ranks that run a program."""
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.backends.jax.test_process_group", program.__name__, engine],
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
    kinds = ("float32", ()), ("float32", (0, 3)), ("float64", (2, 3)), ("int32", 3), ("int64", 1), ("float32", (40, 50))
    own = tuple(np.full(shape, group.rank + 1, dtype) for dtype, shape in kinds)
    (total,) = backend.allreduce([backend.asarray(own, device)])
    for found in backend.to_numpy(backend.launch(lambda xs: tuple(x + x for x in xs), total)):
        print(found.dtype, found.shape, found.sum())
    try:
        backend.allreduce([backend.asarray(np.ones(2, bool), device)])
    except BackendError as error:
        print(error)


def test_a_tuple_of_several_types_and_shapes_is_one_exchange(engine: str, root: Path) -> None:
    """Nothing but what the program prints goes to standard output, where gloo says that it is connected."""
    expected = [
        "float32 () 6.0",
        "float32 (0, 3) 0.0",
        "float64 (2, 3) 36.0",
        "int32 (3,) 18",
        "int64 (1,) 6",
        "float32 (40, 50) 12000.0",
    ]
    for status, (*sums, refusal), errors in end(start(sums_all_kinds, engine, root)):
        assert (status, sums, errors) == (0, expected, "")
        assert "allreduce has no sum of bool" in refusal


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


def test_a_sum_is_queued_and_python_goes_on(root: Path) -> None:
    """A short one too, which XLA would compute on the calling thread. If it blocked, neither rank would end."""
    ranks = start(sums_what_another_rank_sums_later, "async", root)
    assert ranks[0].stdout is not None
    assert ranks[0].stdout.readline() == "launched\n"
    assert ranks[1].stdin is not None
    print(file=ranks[1].stdin, flush=True)
    assert end(ranks) == [(0, ["[2.0, 2.0, 2.0]"], "")] * 2


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


def test_who_waits_for_a_sum_with_a_rank_that_died_finds_that_it_is_gone(engine: str, root: Path) -> None:
    (status, lines, errors), (other, _, _) = end(start(loses_a_rank, engine, root))
    assert (status, errors, other) == (0, "", 9)
    (line,) = lines
    assert line.startswith(GONE)


def loses_a_rank_that_joins(_: GroupedBackend, __: Group) -> None:
    """Not be reached: one rank dies when all have met."""


def test_a_rank_that_dies_while_the_ranks_join(root: Path) -> None:
    """JAX's own service would end the survivor by abort."""
    first, (status, _, _) = end(start(loses_a_rank_that_joins, "async", root))
    assert first == (0, ["GroupError rank 1 has gone while the ranks were joining"], "")
    assert status == 9


def test_only_what_gloo_says_is_another_rank_s_doing() -> None:
    failed = "Gloo all-reduce failed: [external/gloo/pair.cc:538] Read error [::1]:4: Broken pipe"
    for message in (f"UNKNOWN: {failed}", f"INTERNAL: Error dispatching computation: {failed}"):
        found = by_another_rank(RuntimeError(message))
        assert str(found) == "another rank is gone or does not answer (gloo: Read error [::1]:4: Broken pipe)"
    assert by_another_rank(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4096 bytes.")) is None


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
