"""Programs on two processes over gloo that were written and recorded once when the reasons stood.

Each docstring ends in what was planted: the reason, or that the exchange is hidden. No rule was
changed for them. The traces in `../traces/held_out` are of the four whose reason was named; of the
two of `slowed` it was named in one process of two, and `nothing-left` in the other, which counts.

    parallel-core profile --steps 12 -- torchrun --nproc-per-node 2 later_programs.py wide_input
"""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


class WideInput(nn.Module):
    """A wide first layer, whose gradient comes last, below a narrow network."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(16_000, 128)
        self.narrow = nn.Sequential(nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.narrow(self.wide(x))


def wide_input() -> None:
    """Exchange in buckets; nearly all is the first layer's, ready when all else is computed."""
    model = DistributedDataParallel(WideInput())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        model(torch.randn(32, 16_000)).logsumexp(1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def short_query_beside() -> None:
    """Gather a large index beside a query that takes a fifth of that time: nothing is left."""
    index = torch.empty(2, 3_000_000)
    part = torch.randn(3_000_000)
    query, keys = torch.randn(64, 512), torch.randn(512, 2048)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    for _ in range(STEPS):
        work = dist.all_gather_into_tensor(index.view(-1), part, async_op=True)
        for _ in range(2):
            scores = functional.softmax(query @ keys, 1)
        work.wait()
        index[:, :64].add_(scores[0, :64])
        optimizer.step()


@torch.no_grad()
def sorted_beside() -> None:
    """Sum counters beside sorting; some steps have nothing to sort: slowed.

    Sorting took a third of the exchange's time alone, so that little of it could be hidden.
    """
    counters, values = torch.zeros(6_000_000), torch.randn(90_000)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    for step in range(STEPS):
        work = dist.all_reduce(counters, async_op=True)
        if step % 8 != 5:
            for _ in range(3):
                values, _ = values.flip(0).sort()
        work.wait()
        counters.mul_(0.5)
        optimizer.step()


def attention_beside() -> None:
    """Swap the last activations beside attention; some steps have none: slowed."""
    attention = nn.MultiheadAttention(256, 4, batch_first=True)
    optimizer = torch.optim.AdamW(attention.parameters())
    outgoing, incoming = torch.randn(5_000_000), torch.empty(5_000_000)
    for step in range(STEPS):
        work = dist.all_to_all_single(incoming, outgoing, async_op=True)
        if step % 7:
            tokens = torch.randn(6, 96, 256)
            out, _ = attention(tokens, tokens, tokens)
            out.square().mean().backward()
        work.wait()
        outgoing.lerp_(incoming, 0.5)
        optimizer.step()
        optimizer.zero_grad()


def loss_beside() -> None:
    """Sum the last loss over the processes beside a whole step: hidden."""
    model = nn.GRU(128, 256, batch_first=True)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    loss = torch.zeros(())
    for _ in range(STEPS):
        total = loss.detach().clone()
        work = dist.all_reduce(total, async_op=True)
        out, _ = model(torch.randn(16, 24, 128))
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        work.wait()


def statistics_beside() -> None:
    """Gather every process' running statistics beside the convolutions that follow: hidden."""
    network = nn.Sequential(
        nn.Conv2d(8, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    gathered = [torch.empty(32) for _ in range(2)]
    for _ in range(STEPS):
        work = dist.all_gather(gathered, network[1].running_mean, async_op=True)
        network(torch.randn(24, 8, 32, 32)).square().mean().backward()
        work.wait()
        optimizer.step()
        optimizer.zero_grad()


PROGRAMS: dict[str, Callable[[], None]] = {
    program.__name__: program
    for program in (
        wide_input,
        short_query_beside,
        sorted_beside,
        attention_beside,
        loss_beside,
        statistics_beside,
    )
}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PROGRAMS[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
