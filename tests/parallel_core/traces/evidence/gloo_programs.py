"""Programs on two processes over gloo, in each of which one reason is planted why an exchange is
not hidden. Their traces are in `../stored/not_hidden`; what ends in `_busy` was recorded while
other programs took four fifths of the cores' time.

    parallel-core profile --steps 5 -- torchrun --nproc-per-node 2 gloo_programs.py late_loop
"""

import sys
import time
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import Work
from torch.nn.parallel import DistributedDataParallel

STEPS = 10


def network(width: int = 512, layers: int = 6) -> nn.Sequential:
    """Return layers that are alike."""
    pairs = [(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(*(layer for pair in pairs for layer in pair))


def steps(model: nn.Module) -> Iterator[None]:
    """Update a model's weights behind what the program does in each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        yield
        optimizer.step()


def differentiate(model: nn.Module, images: int, width: int = 512) -> None:
    """Run a forward and a backward pass on random images."""
    model(torch.randn(images, width)).square().mean().backward()


def wait_for(works: Iterable[Work]) -> None:
    """Wait for exchanges."""
    for work in works:
        work.wait()


def late_loop() -> None:
    """Exchange one gradient after the other, behind the backward pass."""
    model = network()
    for _ in steps(model):
        differentiate(model, 512)
        average_gradients(model)


def average_gradients(model: nn.Module) -> None:
    """Exchange all gradients, one after the other."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2


def late_flat() -> None:
    """Exchange all gradients as one, behind the backward pass."""
    model = network()
    for _ in steps(model):
        differentiate(model, 512)
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = torch.cat([gradient.view(-1) for gradient in gradients])
        dist.all_reduce(flat)
        pieces = flat.split([gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))


def late_async() -> None:
    """Launch all exchanges behind the backward pass, then wait for all."""
    model = network()
    for _ in steps(model):
        differentiate(model, 512)
        gradients = [parameter.grad for parameter in model.parameters()]
        wait_for([dist.all_reduce(gradient, async_op=True) for gradient in gradients])


def waiting_hooks() -> None:
    """Exchange each gradient in a hook that waits for it."""

    def averaged(gradient: Tensor) -> Tensor:
        dist.all_reduce(gradient)
        return gradient / 2

    model = network()
    for parameter in model.parameters():
        parameter.register_hook(averaged)
    for _ in steps(model):
        differentiate(model, 256)


def gathered_when_needed() -> None:
    """Gather each layer's weights just before the layer needs them."""
    shards = [torch.randn(256, 512) / 22 for _ in range(5)]
    last = nn.Linear(512, 512)
    for _ in steps(last):
        activations = torch.randn(512, 512)
        for shard in shards:
            weights = torch.empty(512, 512)
            dist.all_gather_into_tensor(weights, shard)
            activations = torch.tanh(activations @ weights)
        last(activations).square().mean().backward()


def sleeping_beside() -> None:
    """Launch an exchange in time, and do nothing that could hide it."""
    model = network()
    statistics = torch.randn(500_000)
    for _ in steps(model):
        work = dist.all_reduce(statistics, async_op=True)
        time.sleep(0.1)
        differentiate(model, 256)
        work.wait()


def counting_beside() -> None:
    """Launch an exchange in time, and count in Python beside it."""
    model = network()
    statistics = torch.randn(1_000_000)
    for _ in steps(model):
        work = dist.all_reduce(statistics, async_op=True)
        total = 0
        for number in range(2_000_000):
            total += number * number
        differentiate(model, 256)
        work.wait()


def layer_by_layer() -> None:
    """Gather each layer's weights ahead, and sleep before the layer that could hide that."""
    shards = [torch.randn(256, 512) / 22 for _ in range(5)]
    last = nn.Linear(512, 512)
    for _ in steps(last):
        activations = torch.randn(512, 512)
        gathered = [torch.empty(512, 512) for _ in shards]
        dist.all_gather_into_tensor(gathered[0], shards[0])
        for layer, shard in enumerate(shards[1:]):
            work = dist.all_gather_into_tensor(gathered[layer + 1], shard, async_op=True)
            time.sleep(0.02)
            activations = torch.tanh(activations @ gathered[layer])
            work.wait()
        last(activations).square().mean().backward()


def more_to_exchange_than_to_compute() -> None:
    """Launch each exchange when its gradient is there, for longer than the pass computes."""
    model = network(1024, 5)
    works: list[Work] = []

    def launch(parameter: nn.Parameter) -> None:
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(launch)
    for _ in steps(model):
        differentiate(model, 48, 1024)
        wait_for(works)
        works.clear()


def no_no_sync() -> None:
    """Exchange in each of four backward passes for one update."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1)
    for _ in steps(model):
        for _ in range(4):
            differentiate(model, 64)


def exchanged_every_time() -> None:
    """Exchange behind each of three backward passes for one update."""
    model = network()
    for _ in steps(model):
        for _ in range(3):
            differentiate(model, 128)
            average_gradients(model)


def hidden() -> None:
    """Exchange little beside a whole step."""
    model = network()
    statistics = torch.randn(10_000)
    for _ in steps(model):
        work = dist.all_reduce(statistics, async_op=True)
        differentiate(model, 1024)
        work.wait()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
