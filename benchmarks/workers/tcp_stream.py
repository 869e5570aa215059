"""Time one TCP stream between two processes, a core each: no exchange over TCP carries a vector faster than it does."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from backends.host import core_numbers
from benchmarks.harness.side_by_side import worker
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.vectors import time_calls
from parallel_core.experiments.training_on_multiple_gpus.allreduce.tcp_stream import (
    accepted,
    answer_round_trip,
    connected,
    listening,
    round_trip,
)
from parallel_core.measurement.result import Case

TIMEOUT = 60.0
"""Seconds within which the other process must be there, and each message must arrive."""


def measure(sizes: list[int], address: str = "127.0.0.1", shell: Sequence[str] = ()) -> dict[str, Any]:
    """Time it at each size, in both directions; `address` is this process's, as the other one reaches it.

    `shell` begins a command that runs the other process, on another host perhaps. The cases are `stream there, SIZE B`
    and `stream back, …`, so many bytes one way and a single byte the other way, and `stream there and back, …`, all
    bytes both ways: of few bytes, half of that is the latency.
    """
    secret = secrets.token_hex(16).encode()
    with listening(address) as listener:
        command = worker("tcp_stream", sizes=sizes, address=address, port=listener.getsockname()[1])
        # It stays in this process's group, which is killed whole when this process ends.
        with subprocess.Popen([*shell, *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as other:
            try:
                other.stdin.write(secret + b"\n")
                other.stdin.flush()
                with accepted(listener, secret, TIMEOUT) as connection:
                    cases = time_each(connection, sizes, round_trip, core=0)
            except BaseException:
                other.kill()
                raise
    return compose(cases, {})


def take_part(sizes: list[int], address: str, port: int) -> dict[str, Any]:
    """Be the other process, which reads the secret from standard input: everyone can read a command line."""
    secret = sys.stdin.readline().strip().encode()
    with connected(address, port, secret, TIMEOUT) as connection:
        time_each(connection, sizes, answer_round_trip, core=1)
    return {}


def time_each(
    connection: socket.socket,
    sizes: list[int],
    call: Callable[[socket.socket, memoryview, memoryview], object],
    core: int,
) -> list[Case]:
    """Time a call, which both processes make equally often, on each size and in each direction."""
    cores = core_numbers()
    # Another host has cores of its own, and perhaps a single one.
    os.sched_setaffinity(0, {cores[core % len(cores)]})
    cases = []
    for size in sizes:
        # Not zeros: pages that were never written to are all the same one, which stays in the cache.
        vector, byte = (memoryview(bytearray(b"\1") * count) for count in (size, 1))
        directions = {"there": (vector, byte), "back": (byte, vector), "there and back": (vector, vector)}
        cases += [
            time_calls(size, f"stream {name}", partial(call, connection, there, back))
            for name, (there, back) in directions.items()
        ]
    return cases


def start(**arguments: Any) -> dict[str, Any]:
    """Be the one process or, if a port is given, the other one."""
    return take_part(**arguments) if "port" in arguments else measure(**arguments)


if __name__ == "__main__":
    answer(start)
