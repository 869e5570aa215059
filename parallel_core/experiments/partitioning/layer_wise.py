"""Layer-wise partitioning: every device holds a block of every layer's channels or units, and works on the whole batch.

The convolution is divided by its channels: each device computes some of them from all images. The hidden layer is
divided by its units, and needs all features: every device sends its own to all others, and adds up the products of each
part with its own rows of the weight. The last layer is divided by its inputs, the hidden units that a device has
already: the devices' parts of the scores are added up. Going back, each device computes its dense layers again.

Sources: the first division into channels, Krizhevsky and others 2012 (ImageNet Classification with Deep Convolutional
Neural Networks); by outputs, then by inputs, Shoeybi and others 2019 (Megatron-LM, section 3).
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from backends import Array, Backend, Ops
from backends.splitting import row_ranges
from parallel_core.experiments.partitioning import network
from parallel_core.experiments.partitioning.network import Parameters
from parallel_core.experiments.partitioning.strategy import Strategy

__all__ = ["LAYER_WISE"]


def place(backend: Backend, parameters: Parameters) -> Array:
    """Load on device d: its channels (weight, bias), and (the hidden layer's blocks by the features' device, its bias,
    the last layer's rows, its bias, of which every device has a copy)."""
    w1, b1, w2, b2, w3, b3 = parameters
    count = len(backend.devices)
    channels, inputs, units = (row_ranges(length, count) for length in (len(w1), len(w2), len(w3)))
    return [
        backend.asarray(((w1[own], b1[own]), (*(w2[rows, mine] for rows in inputs), b2[mine], w3[mine], b3)), device)
        for own, mine, device in zip(channels, units, backend.devices, strict=True)
    ]


def load(backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    """Load the whole batch on every device."""
    return [backend.asarray((images, labels), device) for device in backend.devices]


def step(backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float) -> Array:
    """Launch the layers' blocks forward, with an exchange before each layer, and back the same way."""
    ops, devices = backend.ops, backend.devices
    convolve = network.forward(ops, [network.features])
    made = [backend.launch(convolve, own[0], images) for own, (images, _) in zip(placed, batch, strict=True)]
    gathered = [
        tuple(x if source == device else backend.copy_to(x, device) for x, source in zip(made, devices, strict=True))
        for device in devices
    ]
    parts = [backend.launch(part_of_scores(ops), own[1], xs) for own, xs in zip(placed, gathered, strict=True)]
    each = zip(placed, backend.allreduce(parts), gathered, batch, strict=True)
    dense = [backend.launch(dense_gradients(ops), own[1], scores, xs, labels) for own, scores, xs, (_, labels) in each]
    returned = [
        [x[1][k] if source == device else backend.copy_to(x[1][k], device) for x, source in zip(dense, devices, strict=True)]
        for k, device in enumerate(devices)
    ]
    return [
        backend.launch(update(ops, rate), own, by_dense[0], images, *by_features)
        for own, by_dense, (images, _), by_features in zip(placed, dense, batch, returned, strict=True)
    ]
