"""Network partitioning: every device holds some consecutive layers.

A stage is the layers of one device. Activations pass from stage to stage. A stage waits for the
stage before it, and in the backward pass for the stage behind it. If the batch is cut into
micro-batches, a stage works on one micro-batch while its neighbour works on another (Huang and
others 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism"). As
there, all micro-batches go forward before the first one goes back, their gradients are added up,
and on the way back a stage computes its forward pass again instead of keeping it.
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
    """Load the parameters of each stage on its device."""
    placed = []
    for device, layers in _stages(backend):
        # A layer has two parameters, weight and bias.
        stage_parameters = parameters[2 * layers.start : 2 * layers.stop]
        placed.append(backend.asarray(stage_parameters, device))
    return placed


def _gather_stages(backend: Backend, placed: Sequence[Array]) -> Parameters:
    """Wait for the parameters of all stages, and join them in NumPy."""
    parameters: list[np.ndarray] = []
    for stage_parameters in placed:
        parameters += backend.to_numpy(stage_parameters)
    return tuple(parameters)


def _stages(backend: Backend) -> list[tuple[Device, slice]]:
    """Divide the layers over the devices; return each stage's device and its slice of `LAYERS`.

    If there are more devices than layers, the last devices have no stage. Otherwise the last stages
    have more layers than the first ones, because the first layer takes longest.
    """
    layers = len(LAYERS)
    devices = backend.devices[:layers]
    # The first of these ranges are the longer ones, so they are counted from the last layer.
    ranges_from_end = row_ranges(layers, len(devices))
    stages = []
    for device, from_end in zip(devices, reversed(ranges_from_end), strict=True):
        start = layers - from_end.stop
        stop = layers - from_end.start
        stages.append((device, slice(start, stop)))
    return stages


def _cut(micro_batches: int, backend: Backend, images: np.ndarray, labels: np.ndarray) -> Array:
    """Cut the batch; load images on the first stage's device, and labels on the last one's."""
    stages = _stages(backend)
    first_device, _ = stages[0]
    last_device, _ = stages[-1]
    cut_images = backend.split_and_load(images, [first_device] * micro_batches)
    cut_labels = backend.split_and_load(labels, [last_device] * micro_batches)
    return list(zip(cut_images, cut_labels, strict=True))


def _pass_through(
    backend: Backend, placed: Sequence[Array], batch: Sequence[Array], rate: float
) -> Array:
    """Launch all micro-batches forward, then all of them back, then an update on each device."""
    ops = backend.ops
    *stages, last_stage = (forward(ops, LAYERS[layers]) for _, layers in _stages(backend))
    forward_and_back = _forward_and_back(ops, last_stage)
    inputs_of_micro_batches = []
    results_of_last_stage = []
    for images, labels in batch:
        inputs = _launch_forward(backend, stages, placed, images)
        inputs_of_micro_batches.append(inputs)
        result = backend.launch(forward_and_back, placed[-1], inputs[-1], labels)
        results_of_last_stage.append(result)
    gradients_of_micro_batches = []
    for inputs, result in zip(inputs_of_micro_batches, results_of_last_stage, strict=True):
        gradients_of_micro_batches.append(_launch_back(backend, stages, placed, inputs, result))

    def descend(parameters: Array, *gradients: Array) -> Array:
        """Sum the gradients of all micro-batches, parameter by parameter, and update."""
        by_parameter = zip(*gradients, strict=True)
        summed = [reduce(ops.add, of_micro_batches) for of_micro_batches in by_parameter]
        return ops.sgd(parameters, tuple(summed), rate)

    updated = []
    gradients_by_stage = zip(*gradients_of_micro_batches, strict=True)
    for parameters, gradients in zip(placed, gradients_by_stage, strict=True):
        updated.append(backend.launch(descend, parameters, *gradients))
    return updated


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
    result_of_last_stage: Array,
) -> list[Array]:
    """Launch a micro-batch back through the stages; return each stage's gradients by parameters.

    `stages` are all but the last, whose result is there already. A result is (gradients by the
    stage's parameters, gradient by its input).
    """
    result = result_of_last_stage
    gradients = [result[0]]
    for number in reversed(range(len(stages))):
        by_input_of_next_stage = result[1]
        by_output = backend.copy_to(by_input_of_next_stage, backend.devices[number])
        is_first = number == 0
        back = _back(backend.ops, stages[number], to_images=is_first)
        result = backend.launch(back, placed[number], inputs[number], by_output)
        gradients.insert(0, result[0])
    return gradients


def _forward_and_back(ops: Ops, last_stage: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function of the last stage, which goes forward to the loss and back.

    (parameters, x, labels) -> (gradients by the parameters, gradient by x).
    """

    def loss(leaves: Array, labels: Array) -> Array:
        *parameters, x = leaves
        return ops.cross_entropy(last_stage(parameters, x), labels)

    differentiate = ops.value_and_grad(loss)

    def gradients(leaves: Array, labels: Array) -> Array:
        _, gradients = differentiate(leaves, labels)
        return gradients

    return _by_parameters_and_x(gradients)


def _by_parameters_and_x(gradients_by_leaves: Callable[..., Array]) -> Callable[..., Array]:
    """Make the function (parameters, x, *rest) -> (gradients by the parameters, gradient by x).

    `gradients_by_leaves` is the function ((*parameters, x), *rest) -> gradients by all of them.
    """

    def back(parameters: Array, x: Array, *rest: Array) -> Array:
        *by_parameters, by_x = gradients_by_leaves((*parameters, x), *rest)
        return tuple(by_parameters), by_x

    return back


def _back(ops: Ops, stage: Callable[..., Array], to_images: bool) -> Callable[..., Array]:
    """Make the function of a stage before the last, which computes it again and goes back.

    (parameters, x, gradient by the result) -> (gradients by the parameters, gradient by x). With
    `to_images` the gradient by x is left out: nobody needs it.
    """
    if not to_images:
        return _by_parameters_and_x(pull_back(ops, lambda leaves: stage(leaves[:-1], leaves[-1])))
    by_parameters = pull_back(ops, stage)

    def back_to_images(parameters: Array, x: Array, by_result: Array) -> Array:
        return (by_parameters(parameters, by_result, x),)

    return back_to_images
