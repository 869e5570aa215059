"""The two programs whose graphs the book draws, operation by operation: z = x·y + 2, and a step of a two-layer MLP.

The MLP's first device keeps the parameters, adds up gradients and updates; the others compute, each on its share of the
batch. Each layer's gradients are summed, and its new parameters sent out, while the layer before it still goes back.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import SimpleNamespace
from typing import Any

import numpy as np

from backends import Array, Backend, Ops
from parallel_core.experiments.automatic_parallelism.scheduling import Program
from parallel_core.experiments.layers import dense, pull_back
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

    def units(backend: Backend) -> list[Callable[[], Array]]:
        ops = backend.ops
        both = ops.as_unit(lambda x, y: ops.add(ops.multiply(x, y), 2.0))
        return [partial(backend.launch, both, *inputs(backend))]

    return Program(inputs, run, units)


def mlp(batch: int) -> Program:
    """Make the program of one training step: `run` returns the new layers on every device, the keeper's first."""

    def inputs(backend: Backend) -> Any:
        keeper, *workers = backend.devices
        images, labels = _synthetic_batch(batch)
        layers = [[backend.asarray(layer, device) for layer in initial_layers()] for device in backend.devices]
        # The batch is where the parameters are, and is sent to the others as a part of the step.
        shards = [backend.split_and_load(rows, [keeper] * len(workers)) for rows in (images, labels)]
        return layers, list(zip(*shards, strict=True)), batch

    def units(backend: Backend) -> list[Callable[[], Array]]:
        (_, *replicas), shards, _ = inputs(backend)
        both_ways = backend.ops.as_unit(partial(_both_passes, backend.ops))
        return [
            partial(backend.launch, both_ways, tuple(layers), backend.copy_to(shard, device))
            for layers, shard, device in zip(replicas, shards, backend.devices[1:], strict=True)
        ]

    return Program(inputs, _train_step, units)


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
    scores = labelled("layer 2", backend.launch(partial(dense, ops), layers[1], hidden))
    loss = labelled("loss", backend.launch(ops.value_and_grad(partial(_loss_of, ops)), (scores,), labels))
    return {"layers": layers, "images": images, "hidden": hidden, "by scores": loss[1][0]}


def _backward(backend: Backend, passed: dict[str, Array], place: int) -> Array:
    """Launch the backward pass through one layer, the second one first; return the gradients by its parameters."""
    ops, layers = backend.ops, passed["layers"]
    if place == 1:
        back = pull_back(ops, lambda leaves: dense(ops, leaves[:2], leaves[2]))
        by = (layers[1][0], layers[1][1], passed["hidden"])
        gradients = labelled("layer 2 back", backend.launch(back, by, passed["by scores"]))
        passed["by hidden"] = gradients[2]
    else:
        back = pull_back(ops, partial(_first_layer, ops))
        gradients = labelled("layer 1 back", backend.launch(back, layers[0], passed["by hidden"], passed["images"]))
    return (gradients[0], gradients[1])


def _both_passes(ops: Ops, layers: Array, shard: Array) -> Array:
    """Compute the gradients by both layers with nothing launched in between: a device's share of the step."""
    at_once: Any = SimpleNamespace(ops=ops, launch=lambda fn, *args: fn(*args))
    passed = _forward(at_once, layers, shard)
    return _backward(at_once, passed, 1), _backward(at_once, passed, 0)


def _first_layer(ops: Ops, parameters: Array, images: Array) -> Array:
    return ops.relu(dense(ops, parameters, images))


def _loss_of(ops: Ops, parameters: Array, labels: Array) -> Array:
    return ops.cross_entropy(parameters[0], labels)


def _add_up(ops: Ops, *gradients: Array) -> Array:
    return tuple(reduce(ops.add, same) for same in zip(*gradients, strict=True))


def initial_layers() -> list[Layer]:
    """Draw the parameters of both layers: the same for every framework."""
    generator = np.random.default_rng(0)
    shapes = ((PIXELS, HIDDEN), (HIDDEN, CLASSES))
    weights = [(generator.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32) for shape in shapes]
    return [(weight, np.zeros(weight.shape[1], dtype=np.float32)) for weight in weights]


def _synthetic_batch(batch: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    images = generator.standard_normal((batch, PIXELS), dtype=np.float32)
    return images, generator.integers(0, CLASSES, batch, dtype=np.int32)


def expected_step(reference: Backend, batch: int) -> list[Layer]:
    """Take the same step on one device, the gradients of the whole network at once, with NumPy as `reference`."""
    ops = reference.ops
    images, labels = _synthetic_batch(batch)

    def loss(parameters: Array, images: Array, labels: Array) -> Array:
        hidden = _first_layer(ops, parameters[:2], images)
        return ops.cross_entropy(dense(ops, parameters[2:], hidden), labels)

    parameters = tuple(array for layer in initial_layers() for array in layer)
    _, gradients = ops.value_and_grad(loss)(parameters, images, labels)
    w1, b1, w2, b2 = ops.sgd(parameters, gradients, RATE / batch)
    return [(w1, b1), (w2, b2)]
