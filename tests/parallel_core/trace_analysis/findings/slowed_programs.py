"""Programs on two processes over gloo, in each of which computation slows the exchange beside it.

Every exchange is launched in time, beside computation that lasts about as long as the exchange
takes alone. On two cores its thread competes with those that compute. In every ninth step nothing
is computed beside it. Their traces are in `../traces/slowed`: of five recordings of each program
four, four and two show the reason, since how long an exchange takes alone is known of two or three
steps only, and one process may have waited for the other in them.

    parallel-core profile --steps 20 -- torchrun --nproc-per-node 2 slowed_programs.py averaged_late
"""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

STEPS = 26
ALONE = 9
"""One step in this number computes nothing beside its exchange."""


def averaged_late() -> None:
    """Average the last batch's gradients beside the next batch; some steps have no batch."""
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    flat = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    for step in range(STEPS):
        work = dist.all_reduce(flat, async_op=True)
        if step % ALONE:
            model(torch.randn(20, 1024)).square().mean().backward()
        work.wait()
        gradients = [one.grad.view(-1) for one in model.parameters() if one.grad is not None]
        if gradients:
            flat = torch.cat(gradients)
        optimizer.step()


@torch.no_grad()
def gathered_ahead() -> None:
    """Gather the next layer's weights beside this layer; some layers are not needed."""
    shard = torch.randn(1024, 2048) / 45
    weights = [torch.randn(2048, 2048) / 45 for _ in range(2)]
    activations = torch.randn(72, 2048)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    for step in range(STEPS):
        work = dist.all_gather_into_tensor(weights[(step + 1) % 2], shard, async_op=True)
        if step % ALONE:
            activations = torch.tanh(activations @ weights[step % 2])
        work.wait()
        optimizer.step()


@torch.no_grad()
def shared_beside_moments() -> None:
    """Average a table beside the update of moments, which moves much memory."""
    table, moments = torch.randn(4_000_000), torch.zeros(1_000_000)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    for step in range(STEPS):
        work = dist.all_reduce(table, async_op=True)
        if step % ALONE:
            for number in range(8):
                moments = moments * 0.9 + number
        work.wait()
        table = table / 2
        optimizer.step()


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program for program in (averaged_late, gathered_ahead, shared_beside_moments)
}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PROGRAMS[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
