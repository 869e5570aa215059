"""LeNet, trained on a backend's devices with a few synthetic images."""

from backends import Backend
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.loop import train
from parallel_core.training.step import get_params


def losses(backend: Backend, images: int, settings: Settings) -> list[tuple[float, ...]]:
    """Train on all devices of a backend, and return the losses by epoch."""
    data = synthetic("a test needs no more", train=images, test=10)
    params = [get_params(backend, device) for device in backend.devices]
    return [epoch.losses for epoch in train(backend, params, data, settings)]
