"""Time the book's allreduce loop, written plainly in a framework, on two CPU devices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.installation.cuda_libraries import load_cuda_libraries
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.environment import set_environment
from benchmarks.workers.vectors import drawn, problem, time_calls
from parallel_core.measurement.result import Case


def measure(framework: str, sizes: list[int], threads: int) -> dict[str, Any]:
    """Time it at each size, with so many threads for an operator; the cases are named `book, SIZE B`.

    PyTorch's transfers between CPU devices are none, so there it is timed with real ones too: `book, copying, …`.
    """
    set_environment(threads)
    return compose(*(on_mxnet if framework == "mxnet" else on_torch)(sizes))


def on_mxnet(sizes: list[int]) -> tuple[list[Case], dict[str, str], list[str]]:
    """Time MXNet's loop on cpu(1) and cpu(2)."""
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


def on_torch(sizes: list[int]) -> tuple[list[Case], dict[str, str], list[str]]:
    """Time PyTorch's loop, whose devices are all one CPU."""
    import torch

    from benchmarks.plain.torch_plain import allreduce, copying_allreduce

    def load(size: int) -> list[Any]:
        return [torch.tensor(drawn(size, i)) for i in range(2)]

    cases, problems = [], []
    for name, call in {"book": allreduce, "book, copying": copying_allreduce}.items():
        timed, found = time_sizes(name, sizes, load, call, lambda x: x.numpy())
        cases += timed
        problems += found
    return cases, {"torch": torch.__version__}, problems


def time_sizes(
    name: str,
    sizes: list[int],
    load: Callable[[int], list[Any]],
    call: Callable[[list[Any]], object],
    to_numpy: Callable[[Any], np.ndarray],
) -> tuple[list[Case], list[str]]:
    """Check a single call at each size, then time calls on zeros: sums of sums would overflow."""
    cases, problems = [], []
    for size in sizes:
        data = load(size)
        call(data)
        problems += problem(f"{name}, {size} B", [to_numpy(x) for x in data])
        for x in data:
            x[:] = 0
        cases.append(time_calls(size, name, lambda data=data: call(data)))
    return cases, problems


if __name__ == "__main__":
    answer(measure)
