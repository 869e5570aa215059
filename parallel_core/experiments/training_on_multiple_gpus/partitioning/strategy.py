"""What a way to divide a network over devices consists of."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import Parameters

__all__ = ["Strategy"]


@dataclass(frozen=True)
class Strategy:
    """Four functions; what is placed and loaded is the strategy's own affair."""

    place: Callable[[Backend, Parameters], Array]
    """Load the parameters, or each device's part of them."""
    load: Callable[[Backend, np.ndarray, np.ndarray], Array]
    """Load images (n, 1, 28, 28) and labels (n,) to where they are needed."""
    step: Callable[[Backend, Array, Array, float], Array]
    """Launch a step of gradient descent: (backend, placed, loaded, rate) -> placed. What was placed is consumed."""
    gather: Callable[[Backend, Array], Parameters]
    """Wait for the parameters and put them together."""
