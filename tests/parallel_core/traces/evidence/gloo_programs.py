"""Programs on two processes over gloo, in each of which one reason is planted why an exchange is
not hidden. Their traces are in `../traces/not_hidden`; what ends in `_busy` was recorded while
other programs took four fifths of the cores' time.

    parallel-core profile --steps 5 -- torchrun --nproc-per-node 2 gloo_programs.py late_loop
"""

import sys
import time
from collections.abc import Iterable

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


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of all programs."""
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def wait_for(works: Iterable[Work]) -> None:
    """Wait for exchanges."""
    for work in works:
        work.wait()


def late_loop() -> None:
    """Exchange one gradient after the other, behind the backward pass."""
    model = network()
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(512, 512)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2
        optimizer.step()


def late_flat() -> None:
    """Exchange all gradients as one, behind the backward pass."""
    model = network()
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(512, 512)).square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = torch.cat([gradient.view(-1) for gradient in gradients])
        dist.all_reduce(flat)
        pieces = flat.split([gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))
        optimizer.step()


def late_async() -> None:
    """Launch all exchanges behind the backward pass, then wait for all."""
    model = network()
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(512, 512)).square().mean().backward()
        works = [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]
        wait_for(works)
        optimizer.step()


def waiting_hooks() -> None:
    """Exchange each gradient in a hook that waits for it."""

    def averaged(gradient: Tensor) -> Tensor:
        dist.all_reduce(gradient)
        return gradient / 2

    model = network()
    optimizer = optimizer_of(model)
    for parameter in model.parameters():
        parameter.register_hook(averaged)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(256, 512)).square().mean().backward()
        optimizer.step()


def gathered_when_needed() -> None:
    """Gather each layer's weights just before the layer needs them."""
    shards = [torch.randn(256, 512) / 22 for _ in range(5)]
    last = nn.Linear(512, 512)
    optimizer = optimizer_of(last)
    for _ in range(STEPS):
        activations = torch.randn(512, 512)
        for shard in shards:
            weights = torch.empty(512, 512)
            dist.all_gather_into_tensor(weights, shard)
            activations = torch.tanh(activations @ weights)
        last(activations).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def sleeping_beside() -> None:
    """Launch an exchange in time, and do nothing that could hide it."""
    model = network()
    optimizer = optimizer_of(model)
    statistics = torch.randn(500_000)
    for _ in range(STEPS):
        optimizer.zero_grad()
        work = dist.all_reduce(statistics, async_op=True)
        time.sleep(0.1)
        model(torch.randn(256, 512)).square().mean().backward()
        work.wait()
        optimizer.step()


def counting_beside() -> None:
    """Launch an exchange in time, and count in Python beside it."""
    model = network()
    optimizer = optimizer_of(model)
    statistics = torch.randn(1_000_000)
    for _ in range(STEPS):
        optimizer.zero_grad()
        work = dist.all_reduce(statistics, async_op=True)
        total = 0
        for number in range(2_000_000):
            total += number * number
        model(torch.randn(256, 512)).square().mean().backward()
        work.wait()
        optimizer.step()


def layer_by_layer() -> None:
    """Gather each layer's weights ahead, and sleep before the layer that could hide that."""
    shards = [torch.randn(256, 512) / 22 for _ in range(5)]
    last = nn.Linear(512, 512)
    optimizer = optimizer_of(last)
    for _ in range(STEPS):
        activations = torch.randn(512, 512)
        gathered = [torch.empty(512, 512) for _ in shards]
        dist.all_gather_into_tensor(gathered[0], shards[0])
        for layer, shard in enumerate(shards[1:]):
            work = dist.all_gather_into_tensor(gathered[layer + 1], shard, async_op=True)
            time.sleep(0.02)
            activations = torch.tanh(activations @ gathered[layer])
            work.wait()
        last(activations).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def more_to_exchange_than_to_compute() -> None:
    """Launch each exchange when its gradient is there, for longer than the pass computes."""
    model = network(1024, 5)
    optimizer = optimizer_of(model)
    works: list[Work] = []

    def launch(parameter: nn.Parameter) -> None:
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(launch)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(48, 1024)).square().mean().backward()
        wait_for(works)
        works.clear()
        optimizer.step()


def no_no_sync() -> None:
    """Exchange in each of four backward passes for one update."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1)
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(4):
            (model(torch.randn(64, 512)).square().mean() / 4).backward()
        optimizer.step()


def exchanged_every_time() -> None:
    """Exchange behind each of three backward passes for one update."""
    model = network()
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        for _ in range(3):
            model(torch.randn(128, 512)).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= 2
        optimizer.step()
        optimizer.zero_grad()


def hidden() -> None:
    """Exchange little beside a whole step."""
    model = network()
    optimizer = optimizer_of(model)
    statistics = torch.randn(10_000)
    for _ in range(STEPS):
        work = dist.all_reduce(statistics, async_op=True)
        model(torch.randn(1024, 512)).square().mean().backward()
        work.wait()
        optimizer.step()
        optimizer.zero_grad()


PROGRAMS = {
    program.__name__: program
    for program in (
        late_loop,
        late_flat,
        late_async,
        waiting_hooks,
        gathered_when_needed,
        sleeping_beside,
        counting_beside,
        layer_by_layer,
        more_to_exchange_than_to_compute,
        no_no_sync,
        exchanged_every_time,
        hidden,
    )
}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PROGRAMS[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
