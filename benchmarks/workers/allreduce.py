"""Time peers of our allreduce: the book's loop in each framework, MXNet's key-value store,
torch.distributed's gloo.

On two CPU devices of this process, but for gloo: there in two processes of this machine, each kept
to a core.
"""

import atexit
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from backends.mxnet.installation import load_cuda_libraries
from benchmarks.workers.answer import compose, set_environment
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.system.formatting import write_size

MIN_REPETITIONS, MAX_REPETITIONS = 5, 300
BYTES = 50e6
TIMEOUT = timedelta(seconds=60)
Peer = tuple[Callable[[int], list[Any]], Callable[[list[Any]], object]]
"""What makes this process's vectors of a size, and what sums them in place and returns when all is
done.
"""


def measure(peer: str, sizes: list[int], threads: int = 1, **meeting: int) -> dict[str, Any]:
    """Check a sum of a peer at each size and time it, with this many threads for an operator.

    The cases of `mxnet` and `torch` are named `book, SIZE`. PyTorch's transfers between CPU devices
    are none, so its loop is timed with real ones too: `book, copying, SIZE`. `kvstore` gives
    `kvstore local, SIZE` and `kvstore device, SIZE`, and `gloo` `gloo, SIZE`: its two processes
    meet as `gloo` says.
    """
    set_environment(threads)
    framework, peers = PEERS[peer]
    seconds: dict[str, list[float]] = {}
    problems = []
    for (name, (load, call)), size in product(peers(**meeting).items(), sizes):
        case, data = f"{name}, {write_size(size)}", load(size)
        call(data)
        expected = drawn(size, 0) + drawn(size, 1)
        error = max(
            relative_error(x.asnumpy() if hasattr(x, "asnumpy") else x.numpy(), expected)
            for x in data
        )
        if not error < 1e-5:
            problems.append(f"{case} differs from NumPy's sum by {error:.1e}")
        seconds[case] = time_calls(call, data, size)
    return compose(seconds, {framework: sys.modules[framework].__version__}, problems)


def mxnet_loop() -> dict[str, Peer]:
    """Make the book's loop in MXNet on cpu(1) and cpu(2)."""
    load_cuda_libraries()
    import mxnet as mx

    from benchmarks.plain.mxnet_plain import allreduce

    def load(size: int) -> list[Any]:
        return [mx.np.array(drawn(size, i), dtype=np.float32, ctx=mx.cpu(i + 1)) for i in range(2)]

    def call(data: list[Any]) -> None:
        allreduce(data)
        mx.npx.waitall()

    return {"book": (load, call)}


def key_value_stores() -> dict[str, Peer]:
    """Make MXNet's own collective, pushpull of its key-value stores `local` and `device`, on cpu(1)
    and cpu(2).
    """
    load_cuda_libraries()
    import mxnet as mx

    def peer(kind: str) -> Peer:
        store = mx.kv.create(kind)

        def load(size: int) -> list[Any]:
            data = [mx.nd.array(drawn(size, i), ctx=mx.cpu(i + 1)) for i in range(2)]
            store.init(str(data[0].size), mx.nd.zeros_like(data[0]))
            return data

        def call(data: list[Any]) -> None:
            store.pushpull(str(data[0].size), data, out=data)
            mx.nd.waitall()

        return load, call

    return {f"kvstore {kind}": peer(kind) for kind in ("local", "device")}


def torch_loops() -> dict[str, Peer]:
    """Make the book's loop in PyTorch, whose devices are all one CPU."""
    import torch

    from benchmarks.plain.torch_plain import allreduce

    def load(size: int) -> list[Any]:
        return [torch.tensor(drawn(size, i)) for i in range(2)]

    return {"book": (load, allreduce), "book, copying": (load, partial(allreduce, copying=True))}


def gloo(first_core: int, port: int) -> dict[str, Peer]:
    """Be one of two processes, rank 0 that on the first core; they meet at a port of this
    machine.
    """
    # Loopback: the machine's name need not lead to an address.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    from torch import distributed

    rank = int(os.sched_getaffinity(0) != {first_core})
    meeting = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=2, timeout=TIMEOUT
    )
    atexit.register(distributed.destroy_process_group)
    return {
        "gloo": (
            lambda size: [torch.tensor(drawn(size, rank))],
            lambda data: distributed.all_reduce(data[0]),
        )
    }


PEERS: dict[str, tuple[str, Callable[..., dict[str, Peer]]]] = {
    "mxnet": ("mxnet", mxnet_loop),
    "torch": ("torch", torch_loops),
    "kvstore": ("mxnet", key_value_stores),
    "gloo": ("torch", gloo),
}
"""Each peer's framework, and what makes it: what it times, by name."""


def drawn(size: int, device: int) -> np.ndarray:
    """Draw a device's vector of `size` bytes, float32."""
    return np.random.default_rng(device).standard_normal(size // 4, dtype=np.float32)


def time_calls(call: Callable[[list[Any]], object], data: list[Any], size: int) -> list[float]:
    """Time calls on zeros: sums of sums would overflow.

    All peers are repeated equally often, for a second or two, after a tenth as many calls to warm
    up, at least two.
    """
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
    return seconds
