"""Programs on two processes over gloo, in each of which computation slows the exchange beside it.

Every exchange is launched in time, beside computation that goes on a little longer than the
exchange takes alone, which each program measures first. On two cores gloo's thread competes with
those that compute. In every seventh step nothing is computed beside it. Three recordings of each on
an idle machine showed the reason in both processes, and no other. (A gather of weights is no such
program: it was hidden in six recordings of six, and is not slowed.)

    parallel-core profile --steps 30 -- torchrun --nproc-per-node 2 slowed_programs.py averaged_late
"""

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import Work

STEPS = 36
ALONE = 7
"""One step in this number computes nothing beside its exchange."""
LONGER = 1.1
"""The computation goes on for so many times the seconds of the exchange alone."""


def seconds_beside(exchange: Callable[[], Work]) -> float:
    """Return for how many seconds to compute beside an exchange."""
    times = []
    for _ in range(7):
        dist.barrier()
        start = perf_counter()
        exchange().wait()
        times.append(perf_counter() - start)
    return LONGER * median(times)


def compute_for(seconds: float, compute: Callable[[], object]) -> None:
    """Compute again and again for so many seconds."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        compute()


def train(exchange: Callable[[], Work], compute: Callable[[], object]) -> None:
    """Take steps, in most of which something is computed beside the exchange."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    seconds = seconds_beside(exchange)
    for step in range(STEPS):
        work = exchange()
        if step % ALONE:
            compute_for(seconds, compute)
        work.wait()
        optimizer.step()


def averaged_late() -> None:
    """Average the last batch's gradients while the network is evaluated."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
    images = torch.randn(32, 512)
    gradients = torch.randn(4_000_000)
    train(lambda: dist.all_reduce(gradients, async_op=True), lambda: model(images).sum())


def reduced_beside_sorting() -> None:
    """Sum statistics on one process while both sort samples."""
    statistics, samples = torch.randn(4_000_000), torch.randn(20_000)
    train(lambda: dist.reduce(statistics, 0, async_op=True), samples.sort)


def shared_beside_moments() -> None:
    """Average a table while moments are updated, which moves much memory."""
    table, moments = torch.randn(4_000_000), torch.zeros(2_000_000)
    train(
        lambda: dist.all_reduce(table, async_op=True),
        lambda: moments.mul_(0.9).add_(1.0),
    )


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program
    for program in (averaged_late, reduced_beside_sorting, shared_beside_moments)
}


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PROGRAMS[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
