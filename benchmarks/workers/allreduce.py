"""Time peers of our allreduce: the book's loop in each framework, MXNet's key-value store, torch.distributed's gloo.

On two CPU devices of this process, but for gloo: there in two processes of this machine, a core each.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from backends.host import core_numbers
from backends.installation.cuda_libraries import load_cuda_libraries
from benchmarks.harness.side_by_side import worker
from benchmarks.workers.answer import answer, compose, set_environment
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import without_garbage_collection

MIN_REPETITIONS, MAX_REPETITIONS = 5, 300
BYTES = 50e6
TIMEOUT = timedelta(seconds=60)
Timed = tuple[list[Case], list[str]]


def measure(peer: str, sizes: list[int], threads: int = 1, rank: int = 0, meeting: str = "") -> dict[str, Any]:
    """Time a peer at each size, with this many threads for an operator.

    The cases of `mxnet` and `torch` are named `book, SIZE B`. PyTorch's transfers between CPU devices are none, so its
    loop is timed with real ones too: `book, copying, SIZE B`. `kvstore` gives `kvstore local, SIZE B` and `kvstore
    device, SIZE B`, and `gloo` `gloo, SIZE B`: its rank 0 starts rank 1, and they meet in a file.
    """
    set_environment(threads)
    if peer == "gloo":
        return take_part(sizes, rank, meeting) if rank else two_processes(sizes)
    timed = PEERS[peer](sizes)
    framework = "torch" if peer == "torch" else "mxnet"
    problems = [problem for _, problems in timed for problem in problems]
    versions = {framework: sys.modules[framework].__version__}
    return compose([case for cases, _ in timed for case in cases], versions, problems)


def mxnet_loop(sizes: Sequence[int]) -> list[Timed]:
    """Time the book's loop in MXNet on cpu(1) and cpu(2)."""
    load_cuda_libraries()
    import mxnet as mx

    from benchmarks.plain.mxnet_plain import allreduce

    def load(size: int) -> list[Any]:
        return [mx.np.array(drawn(size, i), dtype=np.float32, ctx=mx.cpu(i + 1)) for i in range(2)]

    def call(data: list[Any]) -> None:
        allreduce(data)
        mx.npx.waitall()

    return [time_sizes("book", sizes, load, call)]


def key_value_stores(sizes: Sequence[int]) -> list[Timed]:
    """Time MXNet's own collective, pushpull of its key-value stores `local` and `device`, on cpu(1) and cpu(2)."""
    load_cuda_libraries()
    import mxnet as mx

    def timed(kind: str) -> Timed:
        store = mx.kv.create(kind)

        def load(size: int) -> list[Any]:
            data = [mx.nd.array(drawn(size, i), ctx=mx.cpu(i + 1)) for i in range(2)]
            store.init(str(data[0].size), mx.nd.zeros_like(data[0]))
            return data

        def call(data: list[Any]) -> None:
            store.pushpull(str(data[0].size), data, out=data)
            mx.nd.waitall()

        return time_sizes(f"kvstore {kind}", sizes, load, call)

    return [timed("local"), timed("device")]


def torch_loops(sizes: Sequence[int]) -> list[Timed]:
    """Time the book's loop in PyTorch, whose devices are all one CPU."""
    import torch

    from benchmarks.plain.torch_plain import allreduce

    def load(size: int) -> list[Any]:
        return [torch.tensor(drawn(size, i)) for i in range(2)]

    calls = {"book": allreduce, "book, copying": partial(allreduce, copying=True)}
    return [time_sizes(name, sizes, load, call) for name, call in calls.items()]


PEERS = {"mxnet": mxnet_loop, "torch": torch_loops, "kvstore": key_value_stores}


def two_processes(sizes: list[int]) -> dict[str, Any]:
    """Time gloo in this process, which starts the other one."""
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder, "meeting"))
        # It stays in this process's group, which is killed whole when this process ends.
        command = worker("allreduce", peer="gloo", sizes=sizes, rank=1, meeting=place)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            try:
                answered = take_part(sizes, 0, place)
                output, _ = other.communicate(timeout=TIMEOUT.total_seconds())
            finally:
                other.kill()
    if other.returncode != 0:
        sys.exit(f"the second process ended with status {other.returncode}")
    answered["problems"] += json.loads(output)["problems"]
    return answered


def take_part(sizes: list[int], rank: int, meeting: str) -> dict[str, Any]:
    """Be one of the two processes, on the core of its rank."""
    os.sched_setaffinity(0, {core_numbers()[rank]})
    # Loopback: the machine's name need not lead to an address.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=TIMEOUT)

    def load(size: int) -> list[Any]:
        return [torch.tensor(drawn(size, rank))]

    cases, problems = time_sizes("gloo", sizes, load, lambda data: distributed.all_reduce(data[0]))
    distributed.destroy_process_group()
    return compose(cases, {"torch": torch.__version__}, problems)


def drawn(size: int, device: int) -> np.ndarray:
    """Draw a device's vector of `size` bytes, float32."""
    return np.random.default_rng(device).standard_normal(size // 4, dtype=np.float32)


def time_sizes(
    name: str, sizes: Sequence[int], load: Callable[[int], list[Any]], call: Callable[[list[Any]], object]
) -> Timed:
    """Check a single call at each size, then time calls on zeros: sums of sums would overflow.

    `load` makes this process's vectors of a size, and `call` sums them in place and returns when all is done. All peers
    are repeated equally often, for a second or two, after a tenth as many calls to warm up, at least two. Returns the
    cases `NAME, SIZE B` and what is wrong.
    """
    cases, problems = [], []
    for size in sizes:
        data = load(size)
        call(data)
        expected = drawn(size, 0) + drawn(size, 1)
        error = max(relative_error(x.asnumpy() if hasattr(x, "asnumpy") else x.numpy(), expected) for x in data)
        if not error < 1e-5:
            problems.append(f"{name}, {size} B differs from NumPy's sum by {error:.1e}")
        for x in data:
            x[:] = 0
        count = int(min(MAX_REPETITIONS, max(MIN_REPETITIONS, BYTES / size)))
        seconds = []
        with without_garbage_collection():
            for _ in range(max(2, count // 10)):
                call(data)
            for _ in range(count):
                start = perf_counter()
                call(data)
                seconds.append(perf_counter() - start)
        cases.append(Case(f"{name}, {size} B", tuple(seconds), ()))
    return cases, problems


if __name__ == "__main__":
    answer(measure)
