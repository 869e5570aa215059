"""Time epochs of the book's training loops, one a turn, written plainly in a framework, on one
device and several.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from backends.mxnet.installation import load_cuda_libraries
from benchmarks.harness.side_by_side import turns
from benchmarks.workers.answer import compose, set_environment
from parallel_core.training.batches import Settings, batches
from parallel_core.training.dataset import load_fashion_mnist
from parallel_core.training.lenet import initial_parameters

RATE = 0.2


def measure(
    framework: str, threads: int, batch_size: int, images: int, devices: int = 1
) -> dict[str, Any]:
    """Train with so many threads for an operator, and time an epoch a turn after a first one; the
    case is `epoch`.

    MXNet can train on several devices at once in one process; PyTorch has one CPU. The figure
    `loss` is the first epoch's last one.
    """
    set_environment(threads)
    train_epoch, version = on_mxnet(devices) if framework == "mxnet" else on_torch(threads)
    of_epoch = partial(
        batches, load_fashion_mnist(), Settings(batch_size=batch_size, limit=images // batch_size)
    )
    loss = train_epoch(of_epoch(1))[-1]
    seconds = []
    for turn in turns():
        start = perf_counter()
        train_epoch(of_epoch(1 + turn))
        seconds.append(perf_counter() - start)
    return compose({"epoch": seconds}, {framework: version}, metrics={"loss": loss})


Epoch = Callable[..., list[float]]


def on_mxnet(devices: int) -> tuple[Epoch, str]:
    """Make MXNet's loop, on cpu(1) and those that follow; it reads the number of threads from the
    environment.
    """
    load_cuda_libraries()
    import mxnet as mx

    from benchmarks.plain.mxnet_plain import epoch, load_parameters

    replicas = [
        load_parameters(initial_parameters(), mx.cpu(1 + device)) for device in range(devices)
    ]
    # The book waits after each batch on one device.
    return partial(epoch, replicas, rate=RATE, waiting=devices == 1), mx.__version__


def on_torch(threads: int) -> tuple[Epoch, str]:
    """Make PyTorch's loop."""
    import torch

    from benchmarks.plain.torch_plain import book_epoch, load_parameters

    torch.set_num_threads(threads)
    return partial(book_epoch, load_parameters(initial_parameters()), rate=RATE), torch.__version__
