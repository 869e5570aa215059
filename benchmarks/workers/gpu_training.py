"""Train LeNet in plain PyTorch and by our verbs, fed alike: the same batches from NumPy, through
page-locked memory, and the losses read at the end of an epoch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from backends import Backend
from backends.devices import DeviceKind
from benchmarks.plain.torch_plain import lenet, load_parameters
from parallel_core.measurement.timing import Timing
from parallel_core.training.batches import Settings, batches
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

SETTINGS = {
    "gpu": Settings(batch_size=256, limit=40),
    "cpu": Settings(batch_size=32, limit=4),
}
Step = Callable[[Tensor, Tensor], Tensor]
"""Trains on images and labels, which lie on the host, and returns their loss."""


class Pair(NamedTuple):
    """A ratio of two times."""

    name: str
    numerator: Callable[[], Timing]
    denominator: Callable[[], Timing]
    is_right: Callable[[], bool]
    """Tells whether what was made in the timings is right."""


def images_of(kind: DeviceKind) -> int:
    """Return the number of images of an epoch."""
    settings = SETTINGS[kind]
    return settings.batch_size * (settings.limit or 0)


class PlainTraining:
    """A training in plain PyTorch; `replayed` issues each step as one CUDA graph."""

    def __init__(self, kind: DeviceKind, replayed: bool) -> None:
        self._kind = kind
        self._device = "cuda:0" if kind == "gpu" else "cpu"
        self._settings = SETTINGS[kind]
        self._data = synthetic("a benchmark", train=images_of(kind), test=1)
        self._initial = load_parameters(initial_parameters(self._settings.seed, 1))
        self._parameters = [x.detach().to(self._device).requires_grad_() for x in self._initial]
        self._step: Step = self._eager_step
        if replayed and kind == "gpu":
            self._step = self._recorded_step()
        self.first_losses: list[float] = []

    def epoch(self) -> Timing:
        """Train for an epoch."""
        start = perf_counter()
        losses = []
        for images, labels in batches(self._data, self._settings, epoch=1):
            losses.append(self._step(self._page_locked(images), self._page_locked(labels)))
        sent = perf_counter() - start
        averages = (torch.stack(losses) / self._settings.batch_size).tolist()
        seconds = perf_counter() - start
        self.first_losses = self.first_losses or averages
        return sent, seconds

    def _page_locked(self, x: np.ndarray) -> Tensor:
        on_host = torch.from_numpy(x)
        return on_host.pin_memory() if self._kind == "gpu" else on_host

    def _eager_step(self, images: Tensor, labels: Tensor) -> Tensor:
        images = images.to(self._device, non_blocking=True)
        labels = labels.to(self._device, non_blocking=True)
        return self._train(images, labels)

    def _train(self, images: Tensor, labels: Tensor) -> Tensor:
        scores = lenet(images, self._parameters)
        loss = functional.cross_entropy(scores, labels.long(), reduction="sum")
        gradients = torch.autograd.grad(loss, self._parameters)
        rate = self._settings.learning_rate / self._settings.batch_size
        with torch.no_grad():
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=rate)
        return loss.detach()

    def _recorded_step(self) -> Step:
        first_batch = next(batches(self._data, self._settings, epoch=1))
        static = [torch.from_numpy(x).to(self._device) for x in first_batch]
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            # What libraries make at first cannot be captured.
            for _ in range(3):
                self._train(*static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            loss = self._train(*static)
        with torch.no_grad():
            for parameter, initial in zip(self._parameters, self._initial, strict=True):
                parameter.copy_(initial)

        def step(images: Tensor, labels: Tensor) -> Tensor:
            for target, source in zip(static, (images, labels), strict=True):
                target.copy_(source, non_blocking=True)
            graph.replay()
            return loss.clone()

        return step


class OurTraining:
    """The same by our verbs, on a backend's first device."""

    def __init__(self, backend: Backend, kind: DeviceKind) -> None:
        self._backend = backend
        self._settings = SETTINGS[kind]
        self._data = synthetic("a benchmark", train=images_of(kind), test=1)
        self._parameters = [get_params(backend, backend.devices[0])]
        self.first_losses: list[float] = []

    def epoch(self) -> Timing:
        """Train for an epoch."""
        done = train_epoch(self._backend, self._parameters, self._data, self._settings, number=1)
        self.first_losses = self.first_losses or list(done.losses)
        return done.dispatch_seconds, done.seconds


def trainings(backend: Backend, kind: DeviceKind, replayed: bool) -> Iterator[Pair]:
    """Train an epoch plainly, and by our verbs: the ratio is ours over plain, in images a
    second.
    """
    plain, ours = PlainTraining(kind, replayed), OurTraining(backend, kind)
    name = "ours / plain graph" if replayed else "ours / plain"
    yield Pair(name, plain.epoch, ours.epoch, partial(losses_agree, plain, ours))


def losses_agree(plain: PlainTraining, ours: OurTraining) -> bool:
    """Return whether both began with the same epoch."""
    return np.allclose(plain.first_losses, ours.first_losses, rtol=0.01)
