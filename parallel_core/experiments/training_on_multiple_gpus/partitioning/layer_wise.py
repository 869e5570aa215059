"""Layer-wise partitioning: every device holds a block of every layer's channels or units.

Every device works on the whole batch. The convolution is divided by its channels: each device
computes some of them from all images. The hidden layer is divided by its units, and needs all
features: every device sends its own to all others, multiplies each part by its own rows of the
weight, and adds up. The last layer is divided by its inputs, the hidden units that a device has
already: the devices' parts of the scores are added up. Going back, each device computes its dense
layers again. Sources: the division into channels, Krizhevsky and others 2012 (ImageNet
Classification with Deep Convolutional Neural Networks); by outputs, then by inputs, Shoeybi and
others 2019 (Megatron-LM, section 3).
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from backends import Array, Backend, Ops
from backends.arrays import row_ranges
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import (
    features,
    forward,
)
from parallel_core.experiments.training_steps import Parameters, Strategy
from parallel_core.experiments.workloads import pull_back


def _place_blocks(backend: Backend, parameters: Parameters) -> Array:
    """Load on every device three tuples: of the convolution, the dense layers, and the last bias.

    The hidden layer's weight is cut twice: by the device that makes the features, and by the one
    that makes the units.
    """
    w1, b1, w2, b2, w3, b3 = parameters
    devices = backend.devices
    channel_ranges = row_ranges(len(w1), len(devices))
    unit_ranges = row_ranges(len(b2), len(devices))
    features_per_channel = len(w2) // len(w1)
    ends = [channels.stop * features_per_channel for channels in channel_ranges[:-1]]
    rows_by_source = np.split(w2, ends)
    placed = []
    for device, channels, units in zip(devices, channel_ranges, unit_ranges, strict=True):
        convolution = (w1[channels], b1[channels])
        hidden_weights = [rows[:, units] for rows in rows_by_source]
        dense_layers = (*hidden_weights, b2[units], w3[units])
        blocks = (convolution, dense_layers, (b3,))
        placed.append(tuple(backend.asarray(block, device) for block in blocks))
    return placed


def _step_by_blocks(
    backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float
) -> Array:
    """Launch the layers' blocks forward, with an exchange before each layer, and back likewise."""
    ops, devices = backend.ops, range(len(placed))
    convolve = forward(ops, [features])
    part_of_scores, back = _dense_blocks(ops)
    descend = _descend_by_blocks(ops, rate)
    images = [device_images for device_images, _ in batch]
    labels = [device_labels for _, device_labels in batch]

    own_features = [backend.launch(convolve, placed[k][0], images[k]) for k in devices]
    all_features = _exchanged(backend, [[computed] * len(placed) for computed in own_features])
    parts = [backend.launch(part_of_scores, placed[k][1], all_features[k]) for k in devices]
    scores = backend.allreduce(parts)

    # For each device: gradients by the dense parameters, by the last bias, by all features.
    gradients = [
        backend.launch(back, placed[k][1], placed[k][2], scores[k], all_features[k], labels[k])
        for k in devices
    ]
    sent = [[of_device[2][k] for k in devices] for of_device in gradients]
    by_features = _exchanged(backend, sent)
    return [
        backend.launch(
            descend, placed[k], (gradients[k][0], gradients[k][1]), images[k], *by_features[k]
        )
        for k in devices
    ]


def _exchanged(backend: Backend, sent: Sequence[Sequence[Array]]) -> list[tuple[Array, ...]]:
    """Launch the copies of sent[source][destination]; return what every destination has then.

    It has an array of every source, in their order.
    """
    received = []
    for destination, device in enumerate(backend.devices):
        arrays = []
        for source, by_destination in enumerate(sent):
            array = by_destination[destination]
            if source != destination:
                array = backend.copy_to(array, device)
            arrays.append(array)
        received.append(tuple(arrays))
    return received


def _gather_blocks(backend: Backend, placed: Sequence[Array]) -> Parameters:
    devices = [backend.to_numpy((blocks[0], blocks[1], blocks[2])) for blocks in placed]
    w1 = np.concatenate([convolution[0] for convolution, _, _ in devices])
    b1 = np.concatenate([convolution[1] for convolution, _, _ in devices])
    w2_by_units = [np.concatenate(dense_layers[:-2]) for _, dense_layers, _ in devices]
    w2 = np.concatenate(w2_by_units, axis=1)
    b2 = np.concatenate([dense_layers[-2] for _, dense_layers, _ in devices])
    w3 = np.concatenate([dense_layers[-1] for _, dense_layers, _ in devices])
    _, _, (b3,) = devices[-1]
    return w1, b1, w2, b2, w3, b3


def _dense_blocks(ops: Ops) -> tuple[Callable[[Array, Array], Array], Callable[..., Array]]:
    """Make a device's two functions of its dense parameters: forward, and back.

    Forward, (parameters, all features) -> its part of the scores, without their bias. Back,
    (parameters, last bias, scores, all features, labels) -> the gradients by the parameters, by the
    bias and by the features, a tuple each.
    """
    loss = ops.value_and_grad(lambda leaves, labels: ops.cross_entropy(ops.add(*leaves), labels))

    def part_of_scores(parameters: Array, features: Array) -> Array:
        *hidden_weights, bias, last_weight = parameters
        products = [
            ops.matmul(x, weight) for x, weight in zip(features, hidden_weights, strict=True)
        ]
        units = ops.relu(ops.add(reduce(ops.add, products), bias))
        return ops.matmul(units, last_weight)

    def back(
        parameters: Array, last_bias: Array, scores: Array, features: Array, labels: Array
    ) -> Array:
        by_scores, by_bias = loss((scores, *last_bias), labels)[1]
        count = len(parameters)
        pull = pull_back(ops, lambda leaves: part_of_scores(leaves[:count], leaves[count:]))
        gradients = pull((*parameters, *features), by_scores)
        return gradients[:count], (by_bias,), gradients[count:]

    return part_of_scores, back


def _descend_by_blocks(ops: Ops, rate: float) -> Callable[..., Array]:
    """Make the function of a device that goes back through its convolution, and updates.

    (the device's parameters, gradients by the dense ones and the last bias, images, gradients by
    the device's features, one of each device …) -> new parameters.
    """
    convolve_back = pull_back(ops, forward(ops, [features]))

    def descend(blocks: Array, of_others: Array, images: Array, *by_features: Array) -> Array:
        of_convolution = convolve_back(blocks[0], reduce(ops.add, by_features), images)
        gradients = (of_convolution, *of_others)
        return tuple(ops.sgd(*pair, rate) for pair in zip(blocks, gradients, strict=True))

    return descend


LAYER_WISE = Strategy(
    place=_place_blocks,
    load=lambda backend, images, labels: [
        backend.asarray((images, labels), device) for device in backend.devices
    ],
    step=_step_by_blocks,
    gather=_gather_blocks,
)
