"""JAX's groups of processes: how they meet, their sums, and what a rank finds when another one dies.

Those that meet are threads. A rank that sums is `python -m tests.backends.jax.test_process_group PROGRAM ENGINE`, for a
program of this module.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import backends
from backends import BackendError, Device
from backends.jax.meeting import Meeting, meet
from backends.jax.process_group import by_another_rank
from backends.process_groups import Group, GroupedBackend, GroupError, join, rendezvous
from backends.process_groups.addresses import connect_to, free_port
from backends.process_groups.group import COMPARED_EXCHANGES

Returned = TypeVar("Returned")
HERE = "127.0.0.1"
SECONDS = 60.0
DEADLINE = 120
"""Seconds after which a test that hangs fails."""
GONE = "GroupError another rank is gone or does not answer (gloo: "


def meeting_of(size: int, program: Callable[[Meeting], Returned], port: int) -> "list[Future[Returned]]":
    """Run a program in each rank; return what became of them."""

    def be(rank: int) -> Returned:
        meeting = meet(rank, size, HERE, port, HERE, SECONDS)
        try:
            return program(meeting)
        finally:
            meeting.close()

    with ThreadPoolExecutor(size) as pool:
        return [pool.submit(be, rank) for rank in range(size)]


def test_every_rank_gets_what_each_one_gives_in_the_order_of_ranks() -> None:
    found = meeting_of(3, lambda meeting: meeting.gather({"rank": meeting.rank}), free_port(HERE))
    assert [one.result() for one in found] == [[{"rank": 0}, {"rank": 1}, {"rank": 2}]] * 3


def test_keys_are_passed_on_until_all_are_done() -> None:
    """Each rank is done when it has all keys, and adds a second one when it has the others' first."""

    def program(meeting: Meeting) -> dict[str, str]:
        known = {f"first {meeting.rank}": str(meeting.rank)}

        def keys() -> dict[str, str]:
            if len(known) >= meeting.size:
                known[f"second {meeting.rank}"] = "x"
            return dict(known)

        def add(key: str, value: str) -> None:
            assert key not in known
            known[key] = value

        meeting.pass_on(keys, add, lambda: len(known) == 2 * meeting.size)
        return known

    names = {f"{which} {rank}" for which in ("first", "second") for rank in range(3)}
    assert [set(one.result()) for one in meeting_of(3, program, free_port(HERE))] == [names] * 3


@pytest.mark.parametrize("greeting", [b"", b"GET / HTTP/1.1\r\n\r\n", b"7\n", b"[]\n"])
def test_who_is_none_of_the_ranks_is_sent_away(greeting: bytes) -> None:
    """One that says nothing, one that speaks another language, and one whose rank there is not."""
    port = free_port(HERE)

    def be(rank: int) -> tuple[str, ...]:
        if rank:
            stranger = None
            while stranger is None:
                with suppress(ConnectionRefusedError):
                    stranger = connect_to(HERE, port, SECONDS)
            with stranger:
                stranger.sendall(greeting)
                # What rank 0 has not read when it hangs up comes back as a reset, even before the end is sent.
                with suppress(OSError):
                    stranger.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    assert stranger.recv(1) == b""
        meeting = meet(rank, 2, HERE, port, HERE, SECONDS)
        meeting.close()
        return meeting.hosts

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(be, range(2))) == [(socket.gethostname(),) * 2] * 2


def test_a_rank_that_leaves_is_named_to_rank_0_and_rank_0_to_the_others() -> None:
    def program(meeting: Meeting) -> None:
        if meeting.rank != 1:
            meeting.gather("")

    first, left, other = meeting_of(3, program, free_port(HERE))
    assert left.exception() is None
    for found, gone in ((first, 1), (other, 0)):
        with pytest.raises(GroupError, match=rf"^rank {gone} has gone while the ranks were joining$"):
            found.result()


@pytest.mark.parametrize(("rank", "absent"), [(0, "1, 2"), (1, "0")])
def test_ranks_that_do_not_come_are_named(rank: int, absent: str) -> None:
    with pytest.raises(GroupError, match=rf"^rank {absent} has not joined within 0\.1 s$"):
        meet(rank, 3, HERE, free_port(HERE), HERE, 0.1)


Ranks = list["subprocess.Popen[str]"]
Start = Callable[[Callable[[GroupedBackend, Group], None], str], Ranks]


@pytest.fixture
def start(require: Callable[[str], None], root: Path) -> Start:
    """Start two ranks that run a program on an engine."""
    require("jax")

    def start_ranks(program: Callable[[GroupedBackend, Group], None], engine: str) -> Ranks:
        where = {"WORLD_SIZE": "2", "MASTER_ADDR": HERE, "MASTER_PORT": str(free_port(HERE))}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-m", "tests.backends.jax.test_process_group", program.__name__, engine]
        own = {**os.environ, **where, "PARALLEL_CORE_TIMEOUT": str(DEADLINE)}
        return [
            subprocess.Popen(command, cwd=root, env={**own, "RANK": rank}, text=True, **pipes)  # type: ignore[call-overload]
            for rank in ("0", "1")
        ]

    return start_ranks


def end(ranks: Ranks) -> list[tuple[int, list[str], str]]:
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


def test_a_tuple_of_several_types_and_shapes_is_one_exchange(start: Start, engine: str) -> None:
    """Nothing but what the program prints goes to standard output, where gloo says that it is connected."""
    expected = [
        "float32 () 6.0",
        "float32 (0, 3) 0.0",
        "float64 (2, 3) 36.0",
        "int32 (3,) 18",
        "int64 (1,) 6",
        "float32 (40, 50) 12000.0",
    ]
    for status, (*sums, refusal), errors in end(start(sums_all_kinds, engine)):
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


def test_a_sum_is_queued_and_python_goes_on(start: Start) -> None:
    """A short one too, which XLA would compute on the calling thread. If it blocked, neither rank would end."""
    ranks = start(sums_what_another_rank_sums_later, "async")
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


def test_who_waits_for_a_sum_with_a_rank_that_died_finds_that_it_is_gone(start: Start, engine: str) -> None:
    (status, lines, errors), (other, _, _) = end(start(loses_a_rank, engine))
    assert (status, errors, other) == (0, "", 9)
    (line,) = lines
    assert line.startswith(GONE)


def loses_a_rank_that_joins(_: GroupedBackend, __: Group) -> None:
    """Not be reached: one rank dies when all have met."""


def test_a_rank_that_dies_while_the_ranks_join(start: Start) -> None:
    """JAX's own service would end the survivor by abort."""
    first, (status, _, _) = end(start(loses_a_rank_that_joins, "async"))
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
