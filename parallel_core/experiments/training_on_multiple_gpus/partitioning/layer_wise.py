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
    """Load each device's blocks: of its convolution, of its dense layers, and the last bias.

    The hidden layer's weight is cut by rows into a part for the features of each device, and by
    columns for the device's own units.
    """
    w1, b1, w2, b2, w3, b3 = parameters
    devices = backend.devices
    channel_ranges = row_ranges(len(w1), len(devices))
    unit_ranges = row_ranges(len(b2), len(devices))
    features_per_channel = len(w2) // len(w1)
    last_features = [channels.stop * features_per_channel for channels in channel_ranges[:-1]]
    rows_by_source = np.split(w2, last_features)
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
    """Launch a step: forward through each device's blocks, back, and the update of each device.

    Before the hidden layer all devices exchange their features, and on the way back the gradients
    by these features.
    """
    launch, ops = backend.launch, backend.ops
    devices = range(len(placed))
    convolutions = [blocks[0] for blocks in placed]
    dense_layers = [blocks[1] for blocks in placed]
    last_biases = [blocks[2] for blocks in placed]
    images = [device_images for device_images, _ in batch]
    labels = [device_labels for _, device_labels in batch]

    convolve = forward(ops, [features])
    own_features = [launch(convolve, convolutions[k], images[k]) for k in devices]
    # Every device sends its features to all devices.
    all_features = _exchanged(backend, [[computed] * len(placed) for computed in own_features])
    part_of_scores, back = _dense_blocks(ops)
    parts = [launch(part_of_scores, dense_layers[k], all_features[k]) for k in devices]
    scores = backend.allreduce(parts)

    gradients = [
        launch(back, dense_layers[k], last_biases[k], scores[k], all_features[k], labels[k])
        for k in devices
    ]
    # What is launched cannot be iterated: its items are taken by their places.
    by_dense_layers = [gradients_on_device[0] for gradients_on_device in gradients]
    by_last_bias = [gradients_on_device[1] for gradients_on_device in gradients]
    # Every device sends to each device the gradients by that one's features.
    by_all_features = []
    for gradients_on_device in gradients:
        by_features_of_devices = gradients_on_device[2]
        by_all_features.append([by_features_of_devices[k] for k in devices])
    by_own_features = _exchanged(backend, by_all_features)

    descend = _descend_by_blocks(ops, rate)
    updated = []
    for k in devices:
        known_gradients = (by_dense_layers[k], by_last_bias[k])
        updated.append(launch(descend, placed[k], known_gradients, images[k], *by_own_features[k]))
    return updated


def _exchanged(backend: Backend, sent: Sequence[Sequence[Array]]) -> list[tuple[Array, ...]]:
    """Launch the copies of sent[source][destination], and return what each destination receives.

    It receives an array of every source, in the order of the sources.
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
    """Wait for the blocks of all devices, and join them to the parameters in NumPy."""
    w1_blocks, b1_blocks, w2_columns, b2_blocks, w3_blocks = [], [], [], [], []
    for blocks in placed:
        convolution, dense_layers, (b3,) = backend.to_numpy((blocks[0], blocks[1], blocks[2]))
        w1_block, b1_block = convolution
        *hidden_weights, b2_block, w3_block = dense_layers
        w1_blocks.append(w1_block)
        b1_blocks.append(b1_block)
        # The rows for the features of each device, in the columns of this device's units.
        w2_columns.append(np.concatenate(hidden_weights))
        b2_blocks.append(b2_block)
        w3_blocks.append(w3_block)
    # The last bias is the same on all devices.
    return (
        np.concatenate(w1_blocks),
        np.concatenate(b1_blocks),
        np.concatenate(w2_columns, axis=1),
        np.concatenate(b2_blocks),
        np.concatenate(w3_blocks),
        b3,
    )


def _dense_blocks(ops: Ops) -> tuple[Callable[[Array, Array], Array], Callable[..., Array]]:
    """Make the two functions of a device's dense layers: forward, and back.

    Forward: (parameters, all features) -> the device's part of the scores, without the last bias.
    Back: (parameters, last bias, scores, all features, labels) -> three tuples of gradients: by the
    parameters, by the last bias, and by all features.
    """

    def loss(leaves: Array, labels: Array) -> Array:
        scores_without_bias, last_bias = leaves
        return ops.cross_entropy(ops.add(scores_without_bias, last_bias), labels)

    differentiate = ops.value_and_grad(loss)

    def part_of_scores(parameters: Array, features: Array) -> Array:
        *hidden_weights, bias, last_weight = parameters
        products = [
            ops.matmul(x, weight) for x, weight in zip(features, hidden_weights, strict=True)
        ]
        total = reduce(ops.add, products)
        units = ops.relu(ops.add(total, bias))
        return ops.matmul(units, last_weight)

    def back(
        parameters: Array, last_bias: Array, scores: Array, features: Array, labels: Array
    ) -> Array:
        _, (by_scores, by_bias) = differentiate((scores, *last_bias), labels)
        count = len(parameters)
        pull = pull_back(ops, lambda leaves: part_of_scores(leaves[:count], leaves[count:]))
        gradients = pull((*parameters, *features), by_scores)
        return gradients[:count], (by_bias,), gradients[count:]

    return part_of_scores, back


def _descend_by_blocks(ops: Ops, rate: float) -> Callable[..., Array]:
    """Make the function that goes back through a device's convolution, and updates all its blocks.

    (blocks, (gradients by the dense layers, by the last bias), images, *gradients by the device's
    features) -> new blocks. Each device computed a part of the gradient by the features.
    """
    convolve_back = pull_back(ops, forward(ops, [features]))

    def descend(
        blocks: Array, known_gradients: Array, images: Array, *parts_by_features: Array
    ) -> Array:
        by_features = reduce(ops.add, parts_by_features)
        by_convolution = convolve_back(blocks[0], by_features, images)
        gradients = (by_convolution, *known_gradients)
        return tuple(
            ops.sgd(block, gradient, rate)
            for block, gradient in zip(blocks, gradients, strict=True)
        )

    return descend


LAYER_WISE = Strategy(
    place=_place_blocks,
    load=lambda backend, images, labels: [
        backend.asarray((images, labels), device) for device in backend.devices
    ],
    step=_step_by_blocks,
    gather=_gather_blocks,
)
