"""The two programs whose graphs the book draws, operation by operation: z = x·y + 2, and a step of a two-layer MLP.

The MLP's first device keeps the parameters, adds up gradients and updates; the others compute, each on its share of the
batch. Each layer's gradients are summed, and its new parameters sent out, while the layer before it still goes back.
"""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from backends import Array, Backend, Ops
from parallel_core.experiments.automatic_parallelism.scheduling import Program
from parallel_core.measurement.recording import labelled

__all__ = ["expected_step", "initial_layers", "mlp", "xy"]

PIXELS, HIDDEN, CLASSES = 784, 512, 10
RATE = 1.0

Layer = tuple[np.ndarray, np.ndarray]


def xy(size: int) -> Program:
    """Make the program z = x·y + 2 of two matrices, element by element, on the first device."""

    def inputs(backend: Backend) -> Any:
        ones, device = np.ones((size, size), dtype=np.float32), backend.devices[0]
        return [labelled(name, backend.asarray(ones, device)) for name in ("x", "y")]

    def run(backend: Backend, values: Sequence[Array]) -> Array:
        product = labelled("x · y", backend.launch(backend.ops.multiply, *values))
        return labelled("z = … + 2", backend.launch(backend.ops.add, product, 2.0))

    return Program(inputs, run)


def mlp(batch: int) -> Program:
    """Make the program of one training step: `run` returns the new layers on every device, the keeper's first."""

    def inputs(backend: Backend) -> Any:
        keeper, *workers = backend.devices
        images, labels = _synthetic_batch(batch)
        layers = [[backend.asarray(layer, device) for layer in initial_layers()] for device in backend.devices]
        # The batch is where the parameters are, and is sent to the others as a part of the step.
        shards = [backend.split_and_load(rows, [keeper] * len(workers)) for rows in (images, labels)]
        return layers, list(zip(*shards, strict=True)), batch

    return Program(inputs, _train_step)


def _train_step(backend: Backend, inputs: Any) -> Array:
    (kept, *replicas), shards, batch = inputs
    keeper, *workers = backend.devices
    passes = [
        _forward(backend, layers, labelled("copy batch", backend.copy_to(shard, device)))
        for layers, shard, device in zip(replicas, shards, workers, strict=True)
    ]
    new: list[list[Array]] = [[None, None] for _ in backend.devices]
    for place in (1, 0):
        number = place + 1
        gradients = [
            labelled(f"copy ∇{number}", backend.copy_to(gradient, keeper))
            for gradient in (_backward(backend, each, place) for each in passes)
        ]
        summed = labelled(f"sum ∇{number}", backend.launch(partial(_add_up, backend.ops), *gradients))
        updated = backend.launch(backend.ops.sgd, kept[place], summed, RATE / batch)
        new[0][place] = labelled(f"update W{number}", updated)
        for k, (replica, device) in enumerate(zip(replicas, workers, strict=True), start=1):
            # Over the old parameters, which this device's passes have read by then.
            new[k][place] = labelled(f"copy W{number}", backend.copy_to(updated, device, out=replica[place]))
    return new


def _forward(backend: Backend, layers: Sequence[Array], shard: Array) -> dict[str, Array]:
    """Launch a device's forward pass and its loss; return the values that the backward pass needs."""
    ops, (images, labels) = backend.ops, (shard[0], shard[1])
    hidden = labelled("layer 1", backend.launch(partial(_first_layer, ops), layers[0], images))
    scores = labelled("layer 2", backend.launch(partial(_second_layer, ops), layers[1], hidden))
    loss = labelled("loss", backend.launch(ops.value_and_grad(partial(_loss_of, ops)), (scores,), labels))
    return {"layers": layers, "images": images, "hidden": hidden, "by scores": loss[1][0]}


def _backward(backend: Backend, passed: dict[str, Array], place: int) -> Array:
    """Launch the backward pass through one layer, the second one first; return the gradients by its parameters."""
    ops, layers = backend.ops, passed["layers"]
    if place == 1:
        back = ops.value_and_grad(partial(_second_layer_backward, ops))
        by = (layers[1][0], layers[1][1], passed["hidden"])
        computed = labelled("layer 2 back", backend.launch(back, by, passed["by scores"]))
        passed["by hidden"] = computed[1][2]
    else:
        back = ops.value_and_grad(partial(_first_layer_backward, ops))
        computed = labelled("layer 1 back", backend.launch(back, layers[0], passed["images"], passed["by hidden"]))
    return (computed[1][0], computed[1][1])


def _first_layer(ops: Ops, parameters: Array, images: Array) -> Array:
    """Apply a layer with a rectifier."""
    weight, bias = parameters
    return ops.relu(ops.add(ops.matmul(images, weight), bias))


def _second_layer(ops: Ops, parameters: Array, hidden: Array) -> Array:
    """Apply a layer without one."""
    weight, bias = parameters
    return ops.add(ops.matmul(hidden, weight), bias)


def _loss_of(ops: Ops, parameters: Array, labels: Array) -> Array:
    return ops.cross_entropy(parameters[0], labels)


def _first_layer_backward(ops: Ops, parameters: Array, images: Array, upstream: Array) -> Array:
    """Return a number whose gradients by the parameters are the layer's, given those by its result."""
    return ops.total(ops.multiply(_first_layer(ops, parameters, images), upstream))


def _second_layer_backward(ops: Ops, parameters: Array, upstream: Array) -> Array:
    """Return a number whose gradients by parameters and input are the layer's, given those by its result."""
    weight, bias, hidden = parameters
    return ops.total(ops.multiply(_second_layer(ops, (weight, bias), hidden), upstream))


def _add_up(ops: Ops, *gradients: Array) -> Array:
    return tuple(reduce(ops.add, same) for same in zip(*gradients, strict=True))


def initial_layers() -> list[Layer]:
    """Draw the parameters of both layers: the same for every framework."""
    generator = np.random.default_rng(0)
    return [
        (
            (generator.standard_normal((rows, columns)) / rows**0.5).astype(np.float32),
            np.zeros(columns, dtype=np.float32),
        )
        for rows, columns in ((PIXELS, HIDDEN), (HIDDEN, CLASSES))
    ]


def _synthetic_batch(batch: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    return generator.standard_normal((batch, PIXELS), dtype=np.float32), generator.integers(
        0, CLASSES, batch, dtype=np.int32
    )


def expected_step(reference: Backend, batch: int) -> list[Layer]:
    """Take the same step on one device, the gradients of the whole network at once, with NumPy as `reference`."""
    ops = reference.ops
    images, labels = _synthetic_batch(batch)

    def loss(parameters: Array, images: Array, labels: Array) -> Array:
        w1, b1, w2, b2 = parameters
        hidden = ops.relu(ops.add(ops.matmul(images, w1), b1))
        return ops.cross_entropy(ops.add(ops.matmul(hidden, w2), b2), labels)

    parameters = tuple(array for layer in initial_layers() for array in layer)
    _, gradients = ops.value_and_grad(loss)(parameters, images, labels)
    w1, b1, w2, b2 = ops.sgd(parameters, gradients, RATE / batch)
    return [(w1, b1), (w2, b2)]
