"""Train a network whose halves lie on two processes: each sends the other what it needs next.

Nothing here knows of parallel-core: torchrun --nproc-per-node 2 pipeline_torch.py
"""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ROWS, PARTS, STEPS = 256, 1024, 2, 6


def first_half(model: nn.Module) -> None:
    """Compute parts of a batch and send them on; then take their gradients back."""
    outputs = []
    for _ in range(PARTS):
        output = model(torch.randn(ROWS, WIDTH))
        dist.send(output.detach(), dst=1)
        outputs.append(output)
    gradient = torch.empty(ROWS, WIDTH)
    for output in outputs:
        dist.recv(gradient, src=1)
        output.backward(gradient)


def second_half(model: nn.Module) -> None:
    """Take parts of a batch, and send back how the loss depends on them."""
    inputs = [torch.empty(ROWS, WIDTH, requires_grad=True) for _ in range(PARTS)]
    for part in inputs:
        dist.recv(part.data, src=0)
        model(part).square().mean().backward()
    for part in inputs:
        assert part.grad is not None
        dist.send(part.grad, dst=0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (second_half if rank else first_half)(model)
        optimizer.step()
    print(f"rank {rank} has trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
