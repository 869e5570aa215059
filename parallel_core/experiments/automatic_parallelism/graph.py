"""Graph: what does the graph of a training step look like, and how fast could it be?

Book: Dive into Deep Learning, "Automatic Parallelism", the figure of a two-layer MLP on a CPU and
two GPUs.

Prediction: The devices' forward and backward passes do not depend on each other, so they may run at
the same time, and the second layer's gradients can be summed while the first layer goes back. The
step takes its longest chain: one device's passes, then the sum, the update and the broadcast of the
first layer.

Method: A step is launched operation by operation: the first device keeps the parameters, adds up
the gradients and updates, the others compute, each on its share of the batch. The picture (`--plot
FILE`) is drawn from what is launched and the values that pass from one operation to the next: no
dependency in it was written down by hand. The step is timed with a wait after every operation,
which gives each operation's separate seconds, and then with none.

Look at: how many multiplications ran while another device computed, in a repetition that the
framework's profiler recorded; by the clock, `parallelism`, which is all work over the longest
chain, and `bound_fraction`, the least time that any schedule needs over the time that the step
took. In the picture, the longest chain in colour.

Read: A parallelism of 2 means that no number of devices makes the step more than twice as fast. A
fraction of 1 is as fast as any schedule could be, with as many devices at once as there are cores
for. The backward pass through a layer computes the layer again, since that is what the backends'
gradients are of: real ones take less.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from typing import Annotated, Any

import numpy as np

import backends
from backends import Array, Backend, Device, Ops
from backends.arrays import tree_leaves
from parallel_core.experiments.automatic_parallelism import dependencies
from parallel_core.experiments.automatic_parallelism.task_order import BESIDE
from parallel_core.experiments.runner.changes import larger
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.workloads import Program, dense, hidden, pull_back
from parallel_core.measurement.recording import labelled
from parallel_core.measurement.task_graph import crossings, work_seconds
from parallel_core.system.errors import RequestError


def program(
    trial: Trial, batch: Annotated[int, Parameter("Images in the MLP's step.")] = 1024
) -> None:
    """Record a step's operations, and time them one by one and freely scheduled.

    Raises RequestError for fewer than three devices, and for fewer images than devices compute.
    """
    _check_mlp(len(trial.devices), batch)
    step = mlp(batch)
    (scheduled,) = dependencies.time_programs(trial, {"": step})
    tasks = scheduled.tasks
    trial.described["tasks"] = tasks
    trial.found("parallelism", work_seconds(tasks) / scheduled.bounds.critical_path)
    trial.found("operations", len(tasks))
    trial.found("crossings", crossings(tasks))
    trial.found("moved_bytes", sum(task.bytes for task in tasks))
    trial.found("work_seconds", work_seconds(tasks))
    results = trial.backend.to_numpy(step.launch(trial.backend))
    trial.check("results", tree_leaves(results), expected_step(batch) * len(results))


def _check_mlp(devices: int, batch: int) -> None:
    """Raise RequestError if there are too few devices, or fewer images than devices compute."""
    if devices < 3:
        raise RequestError(
            "the graph of the MLP is of one device that keeps and two that compute (--devices 3)"
        )
    workers = devices - 1
    if batch < workers:
        raise RequestError(
            f"a batch of {batch} leaves some of {workers} devices without an image "
            f"(--batch {workers})"
        )


def mlp(batch: int) -> Program:
    """Make the program of one training step, which returns the new layers on every device.

    The first device keeps the parameters; its layers come first.
    """

    def inputs(backend: Backend) -> Any:
        """Load the layers on every device, and the workers' shards of the batch on the keeper."""
        keeper, *workers = backend.devices
        initial, (images, labels) = drawn_by_numpy(batch)

        def layers_on(device: Device) -> list[Array]:
            return [backend.asarray(layer, device) for layer in initial]

        layers_by_device = [layers_on(device) for device in backend.devices]
        # The batch begins on the keeper: sending it to the workers is a part of the step.
        shards_at = [keeper] * len(workers)
        image_shards = backend.split_and_load(images, shards_at)
        label_shards = backend.split_and_load(labels, shards_at)
        return layers_by_device, list(zip(image_shards, label_shards, strict=True)), batch

    return Program(inputs, train_step)


def train_step(backend: Backend, inputs: Any) -> Array:
    """Launch a training step, and return the new layers of every device.

    Each layer's gradients are summed, and its new parameters sent out, while the layer before it
    still goes back.
    """
    (kept, *replicas), shards, batch = inputs
    keeper, *workers = backend.devices
    passes_of_workers = []
    for layers, shard, device in zip(replicas, shards, workers, strict=True):
        arrived = labelled("copy batch", backend.copy_to(shard, device))
        passes_of_workers.append(passes(backend, layers, arrived))
    for passes_of_worker in passes_of_workers:
        _loss = next(passes_of_worker)
    kept_layers: list[Array] = [None, None]
    new_replicas: list[list[Array]] = [[None, None] for _ in workers]
    # The second layer goes back first.
    for layer, name in ((1, "2"), (0, "1")):
        gradients = []
        for passes_of_worker in passes_of_workers:
            gradient = next(passes_of_worker)
            copied = backend.copy_to(gradient, keeper)
            gradients.append(labelled(f"copy ∇{name}", copied))
        summed = backend.launch(partial(add_up, backend.ops), *gradients)
        labelled(f"sum ∇{name}", summed)
        updated = backend.launch(backend.ops.sgd, kept[layer], summed, 1 / batch)
        kept_layers[layer] = labelled(f"update W{name}", updated)
        for worker, device in enumerate(workers):
            # The copy replaces the old parameters: the worker's passes have read them by then.
            old = replicas[worker][layer]
            copied = backend.copy_to(updated, device, out=old)
            new_replicas[worker][layer] = labelled(f"copy W{name}", copied)
    return [kept_layers, *new_replicas]


def passes(backend: Backend, layers: Sequence[Array], shard: Array) -> Iterator[Array]:
    """Launch a device's passes step by step: yield the loss, and then the gradients of each layer.

    The gradients by the second layer's parameters come before those by the first layer's.
    """
    ops, images, labels = backend.ops, shard[0], shard[1]
    first_layer, second_layer = layers
    units = labelled("layer 1", backend.launch(partial(hidden, ops), first_layer, images))
    scores = labelled("layer 2", backend.launch(partial(dense, ops), second_layer, units))
    differentiate = ops.value_and_grad(
        lambda parameters, labels: ops.cross_entropy(parameters[0], labels)
    )
    loss_and_gradients = labelled("loss", backend.launch(differentiate, (scores,), labels))
    yield loss_and_gradients
    # What is launched cannot be iterated: its items are taken by their places.
    by_scores = loss_and_gradients[1][0]
    back = pull_back(ops, lambda leaves: dense(ops, leaves[:2], leaves[2]))
    leaves = (second_layer[0], second_layer[1], units)
    gradients = labelled("layer 2 back", backend.launch(back, leaves, by_scores))
    by_weight, by_bias, by_units = gradients[0], gradients[1], gradients[2]
    yield by_weight, by_bias
    back = pull_back(ops, partial(hidden, ops))
    gradients = labelled("layer 1 back", backend.launch(back, first_layer, by_units, images))
    by_weight, by_bias = gradients[0], gradients[1]
    yield by_weight, by_bias


def add_up(ops: Ops, *gradients: Array) -> Array:
    """Sum the gradients of several devices, parameter by parameter."""
    gradients_by_parameter = zip(*gradients, strict=True)
    return tuple(reduce(ops.add, on_devices) for on_devices in gradients_by_parameter)


def drawn_by_numpy(batch: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
    """Draw the (weight, bias) of both layers, and the batch: [images, labels].

    Labels are int32, all else is float32. Every framework gets the same numbers.
    """
    generator = np.random.default_rng(0)
    layers = []
    for rows, columns in ((784, 512), (512, 10)):
        weight = generator.standard_normal((rows, columns)) / rows**0.5
        layers.append((weight.astype(np.float32), np.zeros(columns, dtype=np.float32)))
    images = generator.standard_normal((batch, 784), dtype=np.float32)
    labels = generator.integers(0, 10, batch, dtype=np.int32)
    return layers, [images, labels]


def expected_step(batch: int) -> list[np.ndarray]:
    """Return the parameters after the same step, taken in NumPy as one function on one device."""
    ops = backends.load("numpy", 1, threads_per_device=1).ops

    def loss(parameters: Array, images: Array, labels: Array) -> Array:
        units = hidden(ops, parameters[:2], images)
        return ops.cross_entropy(dense(ops, parameters[2:], units), labels)

    layers, (images, labels) = drawn_by_numpy(batch)
    parameters = tuple(chain.from_iterable(layers))
    _, gradients = ops.value_and_grad(loss)(parameters, images, labels)
    return list(ops.sgd(parameters, gradients, 1 / batch))


EXPERIMENT = Experiment(
    name="graph",
    question="What is the graph of a training step?",
    position=7,
    remark="the figure of a two-layer MLP",
    program=program,
    case=dependencies.FREE,
    metrics=(dependencies.BOUND_FRACTION, dependencies.SPEEDUP),
    counts=(replace(BESIDE, case=dependencies.FREE, metric=dependencies.SPEEDUP.name, title=""),),
    changes=(
        *dependencies.CHANGES,
        larger("batch", "Larger batches", "handing operations over matters less"),
    ),
    devices=3,
    options={"full": {"rounds": 10}, "quick": {"rounds": 5}},
)
