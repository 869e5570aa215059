"""Time peers of our allreduce on two CPU devices: the book's loop in each framework, and MXNet's key-value store."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backends.installation.cuda_libraries import load_cuda_libraries
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.environment import set_environment
from benchmarks.workers.vectors import drawn, time_sizes
from parallel_core.measurement.result import Case

Timed = tuple[list[Case], list[str]]


def measure(peer: str, sizes: list[int], threads: int) -> dict[str, Any]:
    """Time a peer at each size, with this many threads for an operator.

    The cases of `mxnet` and `torch` are named `book, SIZE B`. PyTorch's transfers between CPU devices are none, so its
    loop is timed with real ones too: `book, copying, SIZE B`. `kvstore` gives `kvstore local, SIZE B` and `kvstore
    device, SIZE B`.
    """
    set_environment(threads)
    return compose(*PEERS[peer](sizes))


def mxnet_loop(sizes: Sequence[int]) -> tuple[list[Case], dict[str, str], list[str]]:
    """Time the book's loop in MXNet on cpu(1) and cpu(2)."""
    load_cuda_libraries()
    import mxnet as mx

    from benchmarks.plain.mxnet_plain import allreduce

    def load(size: int) -> list[Any]:
        return [mx.np.array(drawn(size, i), dtype=np.float32, ctx=mx.cpu(i + 1)) for i in range(2)]

    def call(data: list[Any]) -> None:
        allreduce(data)
        mx.npx.waitall()

    cases, problems = time_sizes("book", sizes, load, call, lambda x: x.asnumpy())
    return cases, {"mxnet": mx.__version__}, problems


def torch_loop(sizes: Sequence[int]) -> tuple[list[Case], dict[str, str], list[str]]:
    """Time the book's loop in PyTorch, whose devices are all one CPU."""
    import torch

    from benchmarks.plain.torch_plain import allreduce, copying_allreduce

    def load(size: int) -> list[Any]:
        return [torch.tensor(drawn(size, i)) for i in range(2)]

    timed = [
        time_sizes(name, sizes, load, call, lambda x: x.numpy())
        for name, call in {"book": allreduce, "book, copying": copying_allreduce}.items()
    ]
    cases, problems = joined(timed)
    return cases, {"torch": torch.__version__}, problems


def mxnet_store(sizes: Sequence[int]) -> tuple[list[Case], dict[str, str], list[str]]:
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

        return time_sizes(f"kvstore {kind}", sizes, load, call, lambda x: x.asnumpy())

    cases, problems = joined([timed("local"), timed("device")])
    return cases, {"mxnet": mx.__version__}, problems


def joined(timed: Sequence[Timed]) -> Timed:
    """Put the cases of several, and what is wrong with them, into one list each."""
    return [case for cases, _ in timed for case in cases], [problem for _, problems in timed for problem in problems]


PEERS: dict[str, Callable[[Sequence[int]], tuple[list[Case], dict[str, str], list[str]]]] = {
    "mxnet": mxnet_loop,
    "torch": torch_loop,
    "kvstore": mxnet_store,
}


if __name__ == "__main__":
    answer(measure)
