"""Time peers of our allreduce: the book's loop in each framework, and MXNet's key-value store, on
two CPU devices of this process.
"""

import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from backends.mxnet.installation import load_cuda_libraries
from benchmarks.workers.answer import compose, set_environment
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.system.formatting import write_size

MIN_REPETITIONS, MAX_REPETITIONS = 5, 300
BYTES = 50e6
"""About so many are summed in all repetitions."""


class Peer(NamedTuple):
    """A way to sum."""

    load: Callable[[int], list[Any]]
    """Makes the two vectors of a size in bytes."""
    call: Callable[[list[Any]], object]
    """Sums them in place and returns when all is done."""


def measure(peer: str, sizes: list[int]) -> dict[str, Any]:
    """Check a sum of a peer at each size and time it, with one thread for an operator.

    The cases of `mxnet` and `torch` are named `book, SIZE`. PyTorch's transfers between CPU devices
    are none, so its loop is timed with real ones too: `book, copying, SIZE`. `kvstore` gives
    `kvstore device, SIZE`.
    """
    set_environment(threads=1)
    peers = PEERS[peer]()
    seconds: dict[str, list[float]] = {}
    problems = []
    for size in sizes:
        expected = drawn(size, 0) + drawn(size, 1)
        for name, (load, call) in peers.items():
            case = f"{name}, {write_size(size)}"
            data = load(size)
            call(data)
            error = max(relative_error(as_numpy(x), expected) for x in data)
            if not error < 1e-5:
                problems.append(f"{case} differs from NumPy's sum by {error:.1e}")
            seconds[case] = time_calls(call, data, size)
    framework = "torch" if peer == "torch" else "mxnet"
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

    return {"book": Peer(load, call)}


def key_value_store() -> dict[str, Peer]:
    """Make MXNet's own collective, pushpull of its key-value store `device`, on cpu(1) and
    cpu(2).
    """
    load_cuda_libraries()
    import mxnet as mx

    store = mx.kv.create("device")

    def load(size: int) -> list[Any]:
        data = [mx.nd.array(drawn(size, i), ctx=mx.cpu(i + 1)) for i in range(2)]
        store.init(str(data[0].size), mx.nd.zeros_like(data[0]))
        return data

    def call(data: list[Any]) -> None:
        store.pushpull(str(data[0].size), data, out=data)
        mx.nd.waitall()

    return {"kvstore device": Peer(load, call)}


def torch_loops() -> dict[str, Peer]:
    """Make the book's loop in PyTorch, whose devices are all one CPU."""
    import torch

    from benchmarks.plain.torch_plain import allreduce

    torch.set_num_threads(1)

    def load(size: int) -> list[Any]:
        return [torch.tensor(drawn(size, i)) for i in range(2)]

    copying = partial(allreduce, copying=True)
    return {"book": Peer(load, allreduce), "book, copying": Peer(load, copying)}


PEERS: dict[str, Callable[[], dict[str, Peer]]] = {
    "mxnet": mxnet_loop,
    "torch": torch_loops,
    "kvstore": key_value_store,
}
"""What makes the peers that are timed in one process."""


def drawn(size: int, device: int) -> np.ndarray:
    """Draw a device's vector of `size` bytes, float32."""
    return np.random.default_rng(device).standard_normal(size // 4, dtype=np.float32)


def as_numpy(x: Any) -> np.ndarray:
    """Return the values of an array of MXNet or a tensor."""
    values: np.ndarray = x.asnumpy() if hasattr(x, "asnumpy") else x.numpy()
    return values


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
