"""A network, and ways to take a step of it on several devices: each layer is written once, for all
of it or a block.

The network is a convolution with pooling and two dense layers, each with a weight and a bias:
(n, 1, 28, 28) → (n, 144 · channels) → (n, units) → (n, 10).

Network partitioning: every device holds some consecutive layers, and activations pass from device
to device. A device waits for the one before it, and in the backward pass for the one behind it.
With a batch cut into micro-batches, it works on one while its neighbour works on another (Huang and
others 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism"). As
there, all micro-batches go forward before the first one goes back, their gradients are added up,
and going back computes a stage's forward pass again instead of keeping it.

Layer-wise partitioning: every device holds a block of every layer's channels or units, and works on
the whole batch. The convolution is divided by its channels: each device computes some of them from
all images. The hidden layer is divided by its units, and needs all features: every device sends its
own to all others, multiplies each part by its own rows of the weight, and adds up. The last layer
is divided by its inputs, the hidden units that a device has already: the devices' parts of the
scores are added up. Going back, each device computes its dense layers again. Sources: the division
into channels, Krizhevsky and others 2012 (ImageNet Classification with Deep Convolutional Neural
Networks); by outputs, then by inputs, Shoeybi and others 2019 (Megatron-LM, section 3).

Data parallelism: every device holds the whole network and computes the gradients of its share of
the batch. Devices meet once a step, to add up their gradients. What travels is as large as the
parameters, whatever the batch is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from backends import Array, Backend, Device, Ops
from backends.arrays import row_ranges
from parallel_core.experiments.training_steps import (
    Batch,
    Parameters,
    Strategy,
    of_own_rows,
    placed,
    step_by,
)
from parallel_core.experiments.works import dense, hidden, pull_back

Layers: TypeAlias = Sequence[Callable[[Ops, Array, Array], Array]]
"""Each a function (ops, (weight, bias), x) -> its result."""

SIDE, KERNEL, POOL, CLASSES = 28, 5, 2, 10
FEATURES_PER_CHANNEL = ((SIDE - KERNEL + 1) // POOL) ** 2
CHANNELS, UNITS = 8, 32
"""Of a network of width 1."""


def initial_parameters(width: int, seed: int = 0) -> Parameters:
    """Draw float64 weights of variance 1 / inputs, and biases, for 8 · width channels and 32 ·
    width units.
    """
    generator = np.random.default_rng(seed)
    channels, units = CHANNELS * width, UNITS * width
    inputs = FEATURES_PER_CHANNEL * channels
    shapes = (
        (channels, 1, KERNEL, KERNEL),
        (channels,),
        (inputs, units),
        (units,),
        (units, CLASSES),
        (CLASSES,),
    )
    fans = (KERNEL**2, KERNEL**2, inputs, inputs, units, units)
    return tuple(
        generator.standard_normal(shape) / fan**0.5 for shape, fan in zip(shapes, fans, strict=True)
    )


def synthetic_batch(rows: int, seed: int = 1) -> Batch:
    """Draw float64 images and labels."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, 1, SIDE, SIDE)), generator.integers(
        0, CLASSES, rows, dtype=np.int32
    )


def _features(ops: Ops, parameters: Array, images: Array) -> Array:
    """Convolve, clip, pool and flatten: the features of a channel lie side by side, channel after
    channel.
    """
    weight, bias = parameters
    return ops.flatten(ops.avg_pool2d(ops.relu(ops.conv2d(images, weight, bias)), POOL))


LAYERS: Layers = (_features, hidden, dense)


def _forward(ops: Ops, layers: Layers) -> Callable[[Array, Array], Array]:
    """Make the function (the layers' parameters, x) -> the last layer's result."""

    def apply(parameters: Array, x: Array) -> Array:
        for place, layer in enumerate(layers):
            x = layer(ops, parameters[2 * place : 2 * place + 2], x)
        return x

    return apply


def _loss(ops: Ops) -> Callable[[Array, Array, Array], Array]:
    scores = _forward(ops, LAYERS)
    return lambda parameters, x, labels: ops.cross_entropy(scores(parameters, x), labels)


DATA_PARALLELISM = Strategy(step_by(of_own_rows(_loss)))
ONE_DEVICE = replace(
    DATA_PARALLELISM,
    place=lambda backend, parameters: placed(backend, parameters, 1),
    load=lambda backend, images, labels: [backend.asarray((images, labels), backend.devices[0])],
)


def network_partitioning(micro_batches: int) -> Strategy:
    """Make the strategy that cuts each batch into so many micro-batches."""
    return Strategy(
        place=lambda backend, parameters: [
            backend.asarray(parameters[2 * own.start : 2 * own.stop], device)
            for device, own in _stages(backend)
        ],
        load=partial(_cut, micro_batches),
        step=_pass_through,
        gather=lambda backend, placed: tuple(
            parameter for own in placed for parameter in backend.to_numpy(own)
        ),
    )


def _stages(backend: Backend) -> list[tuple[Device, slice]]:
    """Divide the layers over the devices, of which those without a layer stay idle.

    The extra layers go to the last devices, for the first layer takes longest.
    """
    count = len(LAYERS)
    devices = backend.devices[:count]
    shares = reversed(row_ranges(count, len(devices)))
    return [
        (device, slice(count - own.stop, count - own.start))
        for device, own in zip(devices, shares, strict=True)
    ]


def _cut(micro_batches: int, backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    """Cut the batch; images go to the first device, labels to the last."""
    (first, _), *_, (last, _) = _stages(backend)
    ends = ((images, first), (labels, last))
    return list(
        zip(
            *(backend.split_and_load(x, [device] * micro_batches) for x, device in ends),
            strict=True,
        )
    )


def _pass_through(
    backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float
) -> Array:
    """Launch all micro-batches forward, stage by stage, then all of them back, then one update on
    each device.
    """
    ops = backend.ops
    *computed, last = (_forward(ops, LAYERS[own]) for _, own in _stages(backend))
    differentiate = ops.value_and_grad(
        lambda leaves, labels: ops.cross_entropy(last(leaves[:-1], leaves[-1]), labels)
    )
    turn = _also_by_x(lambda leaves, labels: differentiate(leaves, labels)[1])
    inputs, turned, passed = [], [], []
    for images, labels in batch:
        xs = [images]
        for number, compute in enumerate(computed):
            made = backend.launch(compute, placed[number], xs[-1])
            xs.append(backend.copy_to(made, backend.devices[number + 1]))
        inputs.append(xs)
        turned.append(backend.launch(turn, placed[-1], xs[-1], labels))
    for xs, behind in zip(inputs, turned, strict=True):
        gradients = [behind[0]]
        for number in reversed(range(len(computed))):
            upstream = backend.copy_to(behind[1], backend.devices[number])
            back = _going_back(ops, computed[number], to_images=number == 0)
            behind = backend.launch(back, placed[number], xs[number], upstream)
            gradients.insert(0, behind[0])
        passed.append(gradients)

    def descend(parameters: Array, *gradients: Array) -> Array:
        return ops.sgd(
            parameters, tuple(reduce(ops.add, own) for own in zip(*gradients, strict=True)), rate
        )

    return [
        backend.launch(descend, own, *each)
        for own, each in zip(placed, zip(*passed, strict=True), strict=True)
    ]


def _also_by_x(differentiate: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function (parameters, x, *rest) -> (gradients by the parameters, gradient by x).

    `differentiate` has one argument for both: ((*parameters, x), *rest).
    """

    def back(parameters: Array, x: Array, *rest: Array) -> Array:
        *gradients, by_x = differentiate((*parameters, x), *rest)
        return tuple(gradients), by_x

    return back


def _going_back(ops: Ops, compute: Callable[..., Array], to_images: bool) -> Callable[..., Array]:
    """Make the function (parameters, x, upstream) -> (gradients by the parameters, gradient by
    x).
    """
    if to_images:
        # Nobody needs the gradient by the images.
        return lambda parameters, x, upstream: (pull_back(ops, compute)(parameters, upstream, x),)
    return _also_by_x(pull_back(ops, lambda leaves: compute(leaves[:-1], leaves[-1])))


def _place_blocks(backend: Backend, parameters: Parameters) -> Array:
    """Load on every device three tuples: of the convolution, of the dense layers, and the last
    layer's bias.

    The hidden layer's weight is cut twice: by the device that makes the features, and by the one
    that makes the units.
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


def _step_by_blocks(
    backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float
) -> Array:
    """Launch the layers' blocks forward, with an exchange before each layer, and back the same
    way.
    """
    ops, count = backend.ops, len(placed)
    convolve, (part_of_scores, back) = _forward(ops, [_features]), _dense_blocks(ops)
    features = [
        backend.launch(convolve, own[0], images)
        for own, (images, _) in zip(placed, batch, strict=True)
    ]
    gathered = _exchanged(backend, [[own] * count for own in features])
    parts = [
        backend.launch(part_of_scores, own[1], xs) for own, xs in zip(placed, gathered, strict=True)
    ]
    scores = backend.allreduce(parts)
    dense = [
        backend.launch(back, own[1], own[2], total, xs, labels)
        for own, total, xs, (_, labels) in zip(placed, scores, gathered, batch, strict=True)
    ]
    returned = _exchanged(backend, [[own[2][k] for k in range(count)] for own in dense])
    return [
        backend.launch(
            _descend_by_blocks(ops, rate), own, (others[0], others[1]), images, *by_features
        )
        for own, others, (images, _), by_features in zip(
            placed, dense, batch, returned, strict=True
        )
    ]


def _exchanged(backend: Backend, sent: Sequence[Sequence[Array]]) -> list[tuple[Array, ...]]:
    """Launch the copies of sent[source][destination]; return what every destination has then,
    source by source.
    """
    return [
        tuple(
            own[k] if source == k else backend.copy_to(own[k], device)
            for source, own in enumerate(sent)
        )
        for k, device in enumerate(backend.devices)
    ]


def _gather_blocks(backend: Backend, placed: Sequence[Array]) -> Parameters:
    channels, dense, biases = zip(
        *(backend.to_numpy((own[0], own[1], own[2])) for own in placed), strict=True
    )
    w1, b1 = (np.concatenate(parts) for parts in zip(*channels, strict=True))
    w2 = np.concatenate([np.concatenate(blocks) for *blocks, _, _ in dense], axis=1)
    b2, w3 = (np.concatenate([own[place] for own in dense]) for place in (-2, -1))
    return w1, b1, w2, b2, w3, *biases[-1]


LAYER_WISE = Strategy(
    place=_place_blocks,
    load=lambda backend, images, labels: [
        backend.asarray((images, labels), device) for device in backend.devices
    ],
    step=_step_by_blocks,
    gather=_gather_blocks,
)


def _dense_blocks(ops: Ops) -> tuple[Callable[[Array, Array], Array], Callable[..., Array]]:
    """Make a device's two functions of its dense parameters: forward, and back.

    Forward, (parameters, all features) -> its part of the scores, without their bias. Back,
    (parameters, last bias, scores, all features, labels) -> the gradients by the parameters, by the
    bias and by the features, a tuple each.
    """
    loss = ops.value_and_grad(lambda leaves, labels: ops.cross_entropy(ops.add(*leaves), labels))

    def part_of_scores(own: Array, xs: Array) -> Array:
        *blocks, bias, last = own
        sums = reduce(ops.add, (ops.matmul(x, block) for x, block in zip(xs, blocks, strict=True)))
        return ops.matmul(ops.relu(ops.add(sums, bias)), last)

    def back(own: Array, bias: Array, scores: Array, xs: Array, labels: Array) -> Array:
        by_scores, by_bias = loss((scores, *bias), labels)[1]
        count = len(own)
        pull = pull_back(ops, lambda leaves: part_of_scores(leaves[:count], leaves[count:]))
        gradients = pull((*own, *xs), by_scores)
        return gradients[:count], (by_bias,), gradients[count:]

    return part_of_scores, back


def _descend_by_blocks(ops: Ops, rate: float) -> Callable[..., Array]:
    """Make the function (own parameters, gradients but the convolution's, images, gradients by own
    features …).
    """
    convolve = pull_back(ops, _forward(ops, [_features]))

    def descend(own: Array, others: Array, images: Array, *by_features: Array) -> Array:
        gradients = (convolve(own[0], reduce(ops.add, by_features), images), *others)
        return tuple(ops.sgd(*pair, rate) for pair in zip(own, gradients, strict=True))

    return descend
