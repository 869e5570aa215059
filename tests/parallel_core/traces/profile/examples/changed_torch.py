"""Train on two processes that exchange each gradient as soon as it is ready, or on one.

Nothing here knows of parallel-core. Each option changes the program in one way.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, ROWS, LAYERS = 512, 128, 6


class Images(Dataset[torch.Tensor]):
    """Images that take some time to load."""

    def __init__(self, steps: int, rows: int, pause: float) -> None:
        self.steps, self.rows, self.pause = steps, rows, pause

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(self.pause)
        return torch.randn(self.rows, WIDTH)


def train(rank: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    works: list[dist.Work] = []

    def exchange(parameter: torch.Tensor) -> None:
        if options.ranks == 1 or parameter.grad is None:
            return
        gradient = parameter.grad[: WIDTH // 2] if options.half else parameter.grad
        works.append(dist.all_reduce(gradient, async_op=True))

    if not options.late:
        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(exchange)
    rows = ROWS + ROWS // 5 if options.slow_rank and rank == 1 else ROWS
    for images in DataLoader(Images(options.steps, rows, options.pause), batch_size=None):
        outputs = net(images)
        for _ in range(options.more_products):
            outputs = layers[-1](outputs)
        outputs.square().mean().backward()
        if options.late:
            for parameter in net.parameters():
                exchange(parameter)
        for work in works:
            work.wait()
        works.clear()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--late", action="store_true", help="exchange after the backward pass")
    parser.add_argument("--half", action="store_true", help="exchange half of each gradient")
    parser.add_argument("--more-products", type=int, default=0, help="beside those of 6 layers")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to load a batch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--slow-rank", action="store_true", help="rank 1 has 20 %% more rows")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29500"))
    torch.multiprocessing.start_processes(
        train, (options,), nprocs=options.ranks, start_method="fork"
    )


if __name__ == "__main__":
    main()
