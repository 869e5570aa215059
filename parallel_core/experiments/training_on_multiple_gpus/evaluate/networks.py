"""The network that is evaluated: trained for a few steps, then placed on some of the devices."""

from collections.abc import Callable

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.first_losses import enlarged_start, without_test
from parallel_core.measurement.progress import tell
from parallel_core.training.batches import Settings, steps_of
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import continue_training

__all__ = ["Network", "placed", "trained_briefly"]

STEPS_AT_ONCE = 10
"""Between two looks at the clock."""

Network = tuple[np.ndarray, ...]
"""Its parameters."""


def trained_briefly(
    backend: Backend, data: Dataset, settings: Settings, scale: float, left: Callable[[], float]
) -> tuple[Network, int]:
    """Train on all devices from enlarged weights for one epoch, or until no seconds are left; return the steps too."""
    start = enlarged_start(settings.seed, scale)
    params = placed(backend, start, len(backend.devices))
    wanted = steps_of(data, settings)
    steps = 0
    tell("training", 0.0)
    for progress in continue_training(backend, params, without_test(data), settings, every=STEPS_AT_ONCE):
        steps = len(progress.losses)
        tell("training", steps / wanted)
        if left() <= 0:
            break
    return backend.to_numpy(params[0]), steps


def placed(backend: Backend, network: Network, count: int) -> list[Array]:
    """Load a network on each of so many first devices."""
    return [backend.asarray(network, device) for device in backend.devices[:count]]
