"""Network partitioning: every device holds some consecutive layers.

Activations pass from device to device. A device waits for the one before it, and in the backward
pass for the one behind it. With a batch cut into micro-batches, it works on one while its neighbour
works on another (Huang and others 2019, "GPipe: Efficient Training of Giant Neural Networks using
Pipeline Parallelism"). As there, all micro-batches go forward before the first one goes back, their
gradients are added up, and going back computes a stage's forward pass again instead of keeping it.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from backends import Array, Backend, Device, Ops
from backends.arrays import row_ranges
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import LAYERS, forward
from parallel_core.experiments.training_steps import Parameters, Strategy
from parallel_core.experiments.workloads import pull_back


def network_partitioning(micro_batches: int) -> Strategy:
    """Make the strategy that cuts each batch into `micro_batches`."""
    return Strategy(
        place=_place_stages,
        load=partial(_cut, micro_batches),
        step=_pass_through,
        gather=_gather_stages,
    )


def _place_stages(backend: Backend, parameters: Parameters) -> Array:
    """Load on every device the parameters of its layers."""
    placed = []
    for device, layers in _stages(backend):
        of_stage = parameters[2 * layers.start : 2 * layers.stop]
        placed.append(backend.asarray(of_stage, device))
    return placed


def _gather_stages(backend: Backend, placed: Sequence[Array]) -> Parameters:
    parameters: list[np.ndarray] = []
    for of_stage in placed:
        parameters += backend.to_numpy(of_stage)
    return tuple(parameters)


def _stages(backend: Backend) -> list[tuple[Device, slice]]:
    """Divide the layers over the devices, of which those without a layer stay idle.

    The extra layers go to the last devices, for the first layer takes longest.
    """
    layers = len(LAYERS)
    devices = backend.devices[:layers]
    # Counted from the last layer on, because the first shares are the longer ones.
    shares = row_ranges(layers, len(devices))
    stages = []
    for device, share in zip(devices, reversed(shares), strict=True):
        stages.append((device, slice(layers - share.stop, layers - share.start)))
    return stages


def _cut(micro_batches: int, backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    """Cut the batch; images go to the first device, labels to the last."""
    (first_device, _), *_, (last_device, _) = _stages(backend)
    cut_images = backend.split_and_load(images, [first_device] * micro_batches)
    cut_labels = backend.split_and_load(labels, [last_device] * micro_batches)
    return list(zip(cut_images, cut_labels, strict=True))


def _pass_through(
    backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float
) -> Array:
    """Launch all micro-batches forward, then all of them back, then an update on each device."""
    ops = backend.ops
    *stages, last_stage = (forward(ops, LAYERS[layers]) for _, layers in _stages(backend))
    launch_forward = partial(_launch_forward, backend, stages, placed)
    turn = _turning(ops, last_stage)
    inputs, turned = [], []
    for images, labels in batch:
        stage_inputs = launch_forward(images)
        inputs.append(stage_inputs)
        turned.append(backend.launch(turn, placed[-1], stage_inputs[-1], labels))
    gradients = [
        _launch_back(backend, stages, placed, stage_inputs, of_last)
        for stage_inputs, of_last in zip(inputs, turned, strict=True)
    ]

    def descend(parameters: Array, *of_micro_batches: Array) -> Array:
        summed = [reduce(ops.add, same) for same in zip(*of_micro_batches, strict=True)]
        return ops.sgd(parameters, tuple(summed), rate)

    by_stage = zip(*gradients, strict=True)
    return [
        backend.launch(descend, parameters, *of_stage)
        for parameters, of_stage in zip(placed, by_stage, strict=True)
    ]


def _launch_forward(
    backend: Backend, stages: Sequence[Callable[..., Array]], placed: Sequence[Array], images: Array
) -> list[Array]:
    """Launch a micro-batch through all stages but the last; return the input of every stage."""
    inputs = [images]
    for number, stage in enumerate(stages):
        activations = backend.launch(stage, placed[number], inputs[-1])
        inputs.append(backend.copy_to(activations, backend.devices[number + 1]))
    return inputs


def _launch_back(
    backend: Backend,
    stages: Sequence[Callable[..., Array]],
    placed: Sequence[Array],
    inputs: Sequence[Array],
    of_last_stage: Array,
) -> list[Array]:
    """Launch a micro-batch back through all stages; return the gradients by their parameters.

    Those of the last stage are there, with the gradient by its input.
    """
    gradients = [of_last_stage[0]]
    behind = of_last_stage
    for number in reversed(range(len(stages))):
        upstream = backend.copy_to(behind[1], backend.devices[number])
        back = _going_back(backend.ops, stages[number], to_images=number == 0)
        behind = backend.launch(back, placed[number], inputs[number], upstream)
        gradients.insert(0, behind[0])
    return gradients


def _turning(ops: Ops, last_stage: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function of the last stage, which goes forward and back.

    (parameters, x, labels) -> (gradients by the parameters, gradient by x).
    """

    def loss(leaves: Array, labels: Array) -> Array:
        *parameters, x = leaves
        return ops.cross_entropy(last_stage(parameters, x), labels)

    differentiate = ops.value_and_grad(loss)

    def gradients(leaves: Array, labels: Array) -> Array:
        return differentiate(leaves, labels)[1]

    return _also_by_x(gradients)


def _also_by_x(differentiate: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function (parameters, x, *rest) -> (gradients by the parameters, gradient by x).

    `differentiate` has one argument for both: ((*parameters, x), *rest).
    """

    def back(parameters: Array, x: Array, *rest: Array) -> Array:
        *gradients, by_x = differentiate((*parameters, x), *rest)
        return tuple(gradients), by_x

    return back


def _going_back(ops: Ops, stage: Callable[..., Array], to_images: bool) -> Callable[..., Array]:
    """Make the function of another stage, which computes it again and goes back.

    (parameters, x, upstream) -> (gradients by the parameters, gradient by x).
    """
    if to_images:
        # Nobody needs the gradient by the images.
        return lambda parameters, x, upstream: (pull_back(ops, stage)(parameters, upstream, x),)
    return _also_by_x(pull_back(ops, lambda leaves: stage(leaves[:-1], leaves[-1])))
