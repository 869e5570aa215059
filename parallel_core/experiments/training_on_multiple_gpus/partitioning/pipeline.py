"""Network partitioning: every device holds some consecutive layers, and activations pass from device to device.

A device waits for the one before it, and in the backward pass for the one behind it. With a batch cut into
micro-batches, it works on one while its neighbour works on another (Huang and others 2019, "GPipe: Efficient Training
of Giant Neural Networks using Pipeline Parallelism"). As there, all micro-batches go forward before the first one goes
back, their gradients are added up, and going back computes a stage's forward pass again instead of keeping it.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from backends import Array, Backend, Device, Ops
from backends.arrays import row_ranges
from parallel_core.experiments.layers import pull_back
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import LAYERS, Parameters
from parallel_core.experiments.training_on_multiple_gpus.partitioning.strategy import Strategy

__all__ = ["going_back", "network_partitioning", "turning"]


def network_partitioning(micro_batches: int) -> Strategy:
    """Make the strategy that cuts each batch into so many micro-batches."""
    return Strategy(_place, partial(_load, micro_batches), _step, _gather)


def _stages(backend: Backend) -> list[tuple[Device, slice]]:
    """Divide the layers over the devices, of which those without a layer stay idle.

    The extra layers go to the last devices, for the first layer takes longest.
    """
    count = len(LAYERS)
    devices = backend.devices[:count]
    shares = reversed(row_ranges(count, len(devices)))
    return [
        (device, slice(count - share.stop, count - share.start)) for device, share in zip(devices, shares, strict=True)
    ]


def _place(backend: Backend, parameters: Parameters) -> Array:
    """Load each layer's weight and bias on the device that computes it."""
    return [backend.asarray(parameters[2 * own.start : 2 * own.stop], device) for device, own in _stages(backend)]


def _load(micro_batches: int, backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    """Cut the batch; images go to the first device, labels to the last."""
    (first, _), *_, (last, _) = _stages(backend)
    ends = ((images, first), (labels, last))
    return list(zip(*(backend.split_and_load(x, [device] * micro_batches) for x, device in ends), strict=True))


def _step(backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float) -> Array:
    """Launch all micro-batches forward, stage by stage, then all of them back, then one update on each device."""
    forward = [network.forward(backend.ops, LAYERS[own]) for _, own in _stages(backend)]
    turn = turning(backend.ops)
    inputs, turned = [], []
    for images, labels in batch:
        inputs.append(_pass_forward(backend, forward, placed, images))
        turned.append(backend.launch(turn, placed[-1], inputs[-1][-1], labels))
    passed = [_pass_back(backend, forward, placed, xs, last) for xs, last in zip(inputs, turned, strict=True)]
    descend = network.update(backend.ops, rate)
    return [backend.launch(descend, own, *sums) for own, sums in zip(placed, zip(*passed, strict=True), strict=True)]


def _pass_forward(
    backend: Backend, forward: Sequence[Callable[..., Array]], placed: Sequence[Array], images: Array
) -> list[Array]:
    """Launch every stage but the last; return what each stage is given, on its device."""
    xs = [images]
    for number in range(len(placed) - 1):
        made = backend.launch(forward[number], placed[number], xs[-1])
        xs.append(backend.copy_to(made, backend.devices[number + 1]))
    return xs


def _pass_back(
    backend: Backend, forward: Sequence[Callable[..., Array]], placed: Sequence[Array], xs: Sequence[Array], last: Array
) -> list[Array]:
    """Launch every stage's way back but the last one's; return the gradients by each stage's parameters."""
    steps = [last]
    for number in reversed(range(len(placed) - 1)):
        upstream = backend.copy_to(steps[0][1], backend.devices[number])
        back = going_back(backend.ops, forward[number], to_images=number == 0)
        steps.insert(0, backend.launch(back, placed[number], upstream, xs[number]))
    return [computed[0] for computed in steps]


def _gather(backend: Backend, placed: Sequence[Array]) -> Parameters:
    return tuple(parameter for own in placed for parameter in backend.to_numpy(own))


def turning(ops: Ops) -> Callable[[Array, Array, Array], Array]:
    """Make the last stage's function (parameters, x, labels) -> (gradients by the parameters, gradient by x)."""

    def turn(parameters: Array, x: Array, labels: Array) -> Array:
        loss = network.loss(ops, LAYERS[-(len(parameters) // 2) :])
        differentiate = ops.value_and_grad(lambda leaves, labels: loss(leaves[:-1], leaves[-1], labels))
        *gradients, by_x = differentiate((*parameters, x), labels)[1]
        return tuple(gradients), by_x

    return turn


def going_back(ops: Ops, compute: Callable[..., Array], to_images: bool) -> Callable[[Array, Array, Array], Array]:
    """Make the function (parameters, upstream, x) -> (gradients by the parameters, gradient by x).

    Nobody needs the gradient by the images.
    """

    def back(parameters: Array, upstream: Array, x: Array) -> Array:
        if to_images:
            return (pull_back(ops, compute)(parameters, upstream, x),)
        pull = pull_back(ops, lambda leaves: compute(leaves[:-1], leaves[-1]))
        *gradients, by_x = pull((*parameters, x), upstream)
        return tuple(gradients), by_x

    return back
