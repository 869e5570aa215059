"""Programs on two processes over gloo that were written when the reasons stood, in another style
than `gloo_programs`. Their traces are in `../traces/held_out`, recorded on a busy machine but for
`large_embedding` and what ends in `_idle`.

    parallel-core profile --steps 4 -- torchrun --nproc-per-node 2 held_out_programs.py experts
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters

STEPS = 9
TEXT = "the quick brown fox jumps over the lazy dog and runs away again " * 6000


class ConvolutionalNetwork(nn.Module):
    """Six convolutions, a normalisation and a head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(5))
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        x = functional.relu(self.stem(images))
        for layer in self.body:
            x = functional.relu(layer(x))
        return self.head(self.norm(x).mean((2, 3)))


class Bag(nn.Module):
    """The mean of embeddings, whose table is nearly all of the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20_000, 128)
        self.out = nn.Linear(128, 8)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return self.out(self.table(ids).mean(1))


def transformer() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a layer and its optimizer."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return layer, torch.optim.AdamW(layer.parameters())


@contextmanager
def in_flight(tensor: Tensor) -> Iterator[None]:
    """Exchange a tensor while the block runs."""
    work = dist.all_reduce(tensor, async_op=True)
    yield
    work.wait()


def experts() -> None:
    """Send tokens to the process that holds their expert, and wait: waited at once."""
    route, expert = nn.Linear(256, 256), nn.Linear(256, 256)
    optimizer = torch.optim.SGD([*route.parameters(), *expert.parameters()], lr=0.1)
    for _ in range(STEPS):
        tokens = torch.randn(2048, 256)
        for _ in range(4):
            sent = route(tokens).detach()
            arrived = torch.empty_like(sent)
            dist.all_to_all_single(arrived, sent)
            tokens = torch.tanh(expert(arrived))
        tokens.mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def tokenised() -> None:
    """Gather metrics in time, and count words in Python beside that: the host is behind."""
    words = re.compile(r"\w+")
    table, lstm = nn.Embedding(64, 128), nn.LSTM(128, 128, batch_first=True)
    optimizer = torch.optim.Adam([*table.parameters(), *lstm.parameters()])
    metrics = [torch.empty(300_000) for _ in range(2)]
    own_metrics = torch.randn(300_000)
    for _ in range(STEPS):
        work = dist.all_gather(metrics, own_metrics, async_op=True)
        counts = Counter(words.findall(TEXT))
        ids = torch.tensor([[hash(word) % 64 for word in counts] * 4] * 16)
        out, _ = lstm(table(ids))
        out.pow(2).mean().backward()
        work.wait()
        optimizer.step()
        optimizer.zero_grad()


def clipped_then_summed() -> None:
    """Clip the gradients, then exchange them as one vector: launched after the pass."""
    layer, optimizer = transformer()
    for _ in range(STEPS):
        layer(torch.randn(8, 64, 256)).square().mean().backward()
        clip_grad_norm_(layer.parameters(), 1.0)
        gradients = [parameter.grad for parameter in layer.parameters()]
        flat = parameters_to_vector(gradients)
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        vector_to_parameters(flat.div_(2), gradients)
        optimizer.step()
        optimizer.zero_grad()


def hooks_every_time() -> None:
    """Exchange each gradient from a hook, in each of three passes: every micro-batch."""
    layer, optimizer = transformer()
    works = []

    def launch(parameter: nn.Parameter) -> None:
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(launch)
    for _ in range(STEPS):
        for _ in range(3):
            (layer(torch.randn(4, 64, 256)).square().mean() / 3).backward()
            while works:
                works.pop().wait()
        optimizer.step()
        optimizer.zero_grad()


def large_embedding() -> None:
    """Exchange the gradient of a large table, which comes last: nothing is left."""
    model = DistributedDataParallel(Bag())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model(torch.randint(20_000, (64, 32))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def histogram_beside() -> None:
    """Reduce a histogram beside six multiplications: hidden."""
    weights = [torch.randn(768, 768) / 28 for _ in range(6)]
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    histogram = torch.zeros(4096)
    for _ in range(STEPS):
        x = torch.randn(768, 768)
        work = dist.reduce(histogram, 0, async_op=True)
        for weight in weights:
            x = functional.gelu(x @ weight)
        work.wait()
        histogram = torch.histc(x, 4096)
        optimizer.step()


def local_averages() -> None:
    """Exchange a small difference beside a whole step: hidden."""
    network = ConvolutionalNetwork(48)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    difference = torch.zeros(20_000)
    for _ in range(STEPS):
        with in_flight(difference):
            logits = network(torch.randn(32, 3, 32, 32))
            functional.cross_entropy(logits, torch.randint(10, (32,))).backward()
            optimizer.step()
            optimizer.zero_grad()
        difference = difference / 2


PROGRAMS = {
    program.__name__: program
    for program in (
        experts,
        tokenised,
        clipped_then_summed,
        hooks_every_time,
        large_embedding,
        histogram_beside,
        local_averages,
    )
}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PROGRAMS[sys.argv[1]]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
