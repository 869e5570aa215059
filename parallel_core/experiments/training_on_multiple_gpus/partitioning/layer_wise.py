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
from backends.arrays import row_ranges
from parallel_core.experiments.layers import pull_back
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import Parameters
from parallel_core.experiments.training_on_multiple_gpus.partitioning.strategy import Strategy

__all__ = ["LAYER_WISE", "dense_gradients", "part_of_scores", "update"]


def _place(backend: Backend, parameters: Parameters) -> Array:
    """Load on every device three tuples: of the convolution, of the dense layers, and the last layer's bias.

    The hidden layer's weight is cut twice: by the device that makes the features, and by the one that makes the units.
    """
    w1, b1, w2, b2, w3, b3 = parameters
    channels, units = (row_ranges(length, len(backend.devices)) for length in (len(w1), len(b2)))
    by_source = np.split(w2, [own.stop * (len(w2) // len(w1)) for own in channels[:-1]])
    blocks = [
        ((w1[own], b1[own]), (*(rows[:, mine] for rows in by_source), b2[mine], w3[mine]), (b3,))
        for own, mine in zip(channels, units, strict=True)
    ]
    each = zip(blocks, backend.devices, strict=True)
    return [tuple(backend.asarray(part, device) for part in own) for own, device in each]


def _load(backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    return [backend.asarray((images, labels), device) for device in backend.devices]


def _step(backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float) -> Array:
    """Launch the layers' blocks forward, with an exchange before each layer, and back the same way."""
    ops, count = backend.ops, len(placed)
    convolve = network.forward(ops, [network.features])
    features = [backend.launch(convolve, own[0], images) for own, (images, _) in zip(placed, batch, strict=True)]
    gathered = _exchanged(backend, [[own] * count for own in features])
    parts = [backend.launch(part_of_scores(ops), own[1], xs) for own, xs in zip(placed, gathered, strict=True)]
    scores = backend.allreduce(parts)
    dense = [
        backend.launch(dense_gradients(ops), own[1], own[2], total, xs, labels)
        for own, total, xs, (_, labels) in zip(placed, scores, gathered, batch, strict=True)
    ]
    returned = _exchanged(backend, [[own[2][k] for k in range(count)] for own in dense])
    return [
        backend.launch(update(ops, rate), own, (others[0], others[1]), images, *by_features)
        for own, others, (images, _), by_features in zip(placed, dense, batch, returned, strict=True)
    ]


def _exchanged(backend: Backend, sent: Sequence[Sequence[Array]]) -> list[tuple[Array, ...]]:
    """Launch the copies of sent[source][destination]; return what every destination has then, source by source."""
    return [
        tuple(own[k] if source == k else backend.copy_to(own[k], device) for source, own in enumerate(sent))
        for k, device in enumerate(backend.devices)
    ]


def _gather(backend: Backend, placed: Sequence[Array]) -> Parameters:
    channels, dense, biases = zip(*(backend.to_numpy((own[0], own[1], own[2])) for own in placed), strict=True)
    w1, b1 = (np.concatenate(parts) for parts in zip(*channels, strict=True))
    w2 = np.concatenate([np.concatenate(blocks) for *blocks, _, _ in dense], axis=1)
    b2, w3 = (np.concatenate([own[place] for own in dense]) for place in (-2, -1))
    return w1, b1, w2, b2, w3, *biases[-1]


LAYER_WISE = Strategy(_place, _load, _step, _gather)


def part_of_scores(ops: Ops) -> Callable[[Array, Array], Array]:
    """Make the function (a device's dense parameters, all features) -> its part of the scores, without their bias."""

    def apply(own: Array, xs: Array) -> Array:
        *blocks, bias, last = own
        sums = reduce(ops.add, (ops.matmul(x, block) for x, block in zip(xs, blocks, strict=True)))
        return ops.matmul(ops.relu(ops.add(sums, bias)), last)

    return apply


def dense_gradients(ops: Ops) -> Callable[..., Array]:
    """Make the function (a device's dense parameters, last bias, scores, all features, labels) -> three gradients.

    They are those by the dense parameters, by the bias and by the features, a tuple each.
    """
    loss = ops.value_and_grad(lambda leaves, labels: ops.cross_entropy(ops.add(*leaves), labels))

    def back(own: Array, bias: Array, scores: Array, xs: Array, labels: Array) -> Array:
        by_scores, by_bias = loss((scores, *bias), labels)[1]
        count = len(own)
        pull = pull_back(ops, lambda leaves: part_of_scores(ops)(leaves[:count], leaves[count:]))
        gradients = pull((*own, *xs), by_scores)
        return gradients[:count], (by_bias,), gradients[count:]

    return back


def update(ops: Ops, rate: float) -> Callable[..., Array]:
    """Make the function (own parameters, gradients but the convolution's, images, gradients by own features …)."""
    convolve = pull_back(ops, network.forward(ops, [network.features]))

    def descend(own: Array, others: Array, images: Array, *by_features: Array) -> Array:
        gradients = (convolve(own[0], reduce(ops.add, by_features), images), *others)
        return tuple(ops.sgd(*pair, rate) for pair in zip(own, gradients, strict=True))

    return descend
