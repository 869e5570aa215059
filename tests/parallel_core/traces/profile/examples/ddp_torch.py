"""Train with DistributedDataParallel over gloo, on two processes; nothing here knows of
parallel-core.

    parallel-core profile -- ddp_torch.py --bucket-cap-mb 1
    torchrun --nproc-per-node 2 ddp_torch.py --no-sync

The layers are as wide as the exchange of their gradients is short beside their backward pass.
"""

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, ROWS = 256, 2048


def train(rank: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=options.init_method, rank=rank, world_size=2)
    layers = [
        layer for _ in range(options.layers) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())
    ]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=options.bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(ROWS, WIDTH)
    for _ in range(options.steps):
        optimizer.zero_grad()
        with model.no_sync() if options.no_sync else nullcontext():
            model(images).square().mean().backward()
        optimizer.step()
    print(f"rank {rank} has trained", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucket-cap-mb", type=float, default=0.5)
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--fork", action="store_true", help="faster than to import all again")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--init-method", default="env://")
    options = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), options)
    else:
        os.environ.update(
            MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29500")
        )
        start = "fork" if options.fork else "spawn"
        torch.multiprocessing.start_processes(train, (options,), nprocs=2, start_method=start)


if __name__ == "__main__":
    main()
