"""One step as the book does it: split the batch, compute gradients on every device, sum them, and
update on every device. A device alone has nothing to exchange, and its step is one launch.

Book: Dive into Deep Learning, "Training on Multiple GPUs". No framework is named here; every value
passes from verb to verb, so that the code shows the schedule.

Gradients are exchanged all at once after the backward pass, or in buckets during it, because it
computes the last layer's gradients first. A bucket is the gradients of some layers, which are
exchanged together by one allreduce of several arrays, without copies (Li and others 2020, "PyTorch
Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.3).
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from backends import Array, Backend, Device, Ops
from backends.process_groups import grouped
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.timing import completion_times
from parallel_core.training.batches import Exchange
from parallel_core.training.lenet import initial_parameters, loss_and_gradients, shapes

PARAMETERS = len(shapes())
Bucket = tuple[int, ...]
"""The positions of the parameters whose gradients are exchanged together."""
EXCHANGED_TOGETHER: tuple[Bucket, ...] = (tuple(range(PARAMETERS)),)


def get_params(backend: Backend, device: Device, seed: int = 0, width: int = 1) -> Array:
    """Load the initial parameters on a device."""
    return backend.asarray(initial_parameters(seed, width), device)


def split_batch(
    backend: Backend, images: np.ndarray, labels: np.ndarray, devices: Sequence[Device]
) -> list[tuple[Array, Array]]:
    """Divide a batch's rows over the devices; return each device's (images, labels)."""
    image_shards = backend.split_and_load(images, devices)
    label_shards = backend.split_and_load(labels, devices)
    return list(zip(image_shards, label_shards, strict=True))


def train_batch(
    backend: Backend,
    params: Sequence[Array],
    images: np.ndarray,
    labels: np.ndarray,
    learning_rate: float,
    guarded: Sequence[Array],
    buckets: Sequence[Bucket] = EXCHANGED_TOGETHER,
) -> tuple[list[Array], list[Array], list[Array]]:
    """Launch one step on a global batch; return the new parameters, guards and losses by device.

    Gradients are summed over the global batch, and the rate is divided by its size, so the step is
    the same for any number of devices. If a gradient is not finite on any device, the sum is not
    finite on every device, and all devices keep their parameters: in this step, and in later ones
    that take the new guards. The old parameters are consumed.
    """
    rate = learning_rate / len(images)
    if len(params) == 1 and grouped(backend) is None:
        # Nothing is exchanged: the step is one launch.
        ((x, y),) = split_batch(backend, images, labels, devices_of(backend, params))
        step = backend.launch(whole_step(backend.ops), params[0], x, y, rate, guarded[0])
        return [step[0]], [step[1]], [step[2]]

    backward_passes = launch_gradients(backend, params, images, labels)
    losses = [backward_pass[0] for backward_pass in backward_passes]
    gradients = [backward_pass[1] for backward_pass in backward_passes]
    sums = exchange(backend, gradients, buckets)
    new_params = []
    new_guards = []
    for parameters, total, guard in zip(params, sums, guarded, strict=True):
        updated = backend.launch(backend.ops.sgd_while_finite, parameters, total, rate, guard)
        new_params.append(updated[0])
        new_guards.append(updated[1])
    return new_params, new_guards, losses


@cache
def whole_step(ops: Ops) -> Callable[..., tuple[Array, Array, Array]]:
    """Make the function of a step on a device that exchanges nothing.

    (parameters, images, labels, rate, guard) -> (new parameters, new guard, sum of the losses).
    """
    differentiate = loss_and_gradients(ops)

    def step(
        parameters: Array, images: Array, labels: Array, rate: float, guard: Array
    ) -> tuple[Array, Array, Array]:
        loss, gradients = differentiate(parameters, images, labels)
        new_parameters, new_guard = ops.sgd_while_finite(parameters, gradients, rate, guard)
        return new_parameters, new_guard, loss

    return step


def guards(backend: Backend, params: Sequence[Array]) -> list[Array]:
    """Load a guard on each device that holds parameters, for a training that refused no step yet.

    `ops.sgd_while_finite` takes a guard and returns the next one.
    """
    return [
        backend.asarray(np.ones(1, np.float32), device) for device in devices_of(backend, params)
    ]


def devices_of(backend: Backend, params: Sequence[Array]) -> tuple[Device, ...]:
    """Return the devices that hold the parameters: the first devices of the backend."""
    return backend.devices[: len(params)]


def launch_gradients(
    backend: Backend, params: Sequence[Array], images: np.ndarray, labels: np.ndarray
) -> list[Array]:
    """Launch (sum of the losses, gradients) on each device, for its share of a batch."""
    differentiate = loss_and_gradients(backend.ops)
    shards = split_batch(backend, images, labels, devices_of(backend, params))
    return [
        backend.launch(differentiate, parameters, x, y)
        for parameters, (x, y) in zip(params, shards, strict=True)
    ]


def buckets_of(exchange: Exchange) -> tuple[Bucket, ...]:
    """Divide the parameters into buckets, in the order of their exchange.

    `after` the backward pass there is one bucket. `during` it there is a bucket for each layer, its
    weight and its bias, and the last layer comes first.
    """
    if exchange == "after":
        return EXCHANGED_TOGETHER
    layers = [(weight, weight + 1) for weight in range(0, PARAMETERS, 2)]
    return tuple(reversed(layers))


def exchange(
    backend: Backend, gradients: Sequence[Array], buckets: Sequence[Bucket]
) -> list[Array]:
    """Launch the exchange of every device's gradients; return each device's sums.

    `buckets` hold every position once, and are exchanged in their order. The sums are in the order
    of the parameters. The gradients are consumed.
    """
    sums_of_buckets = _sum_buckets(backend, gradients, buckets)
    sums_of_devices = []
    for device in range(len(gradients)):
        by_position: dict[int, Array] = {}
        for bucket, sums in zip(buckets, sums_of_buckets, strict=True):
            for item, position in enumerate(bucket):
                by_position[position] = sums[device][item]
        in_order = tuple(by_position[position] for position in sorted(by_position))
        sums_of_devices.append(in_order)
    return sums_of_devices


def _sum_buckets(
    backend: Backend, gradients: Sequence[Array], buckets: Sequence[Bucket]
) -> list[tuple[Array, ...]]:
    """Launch an allreduce for each bucket, in their order; return each bucket's sums by device."""
    sums = []
    for bucket in buckets:
        on_devices = [_pick(gradients_on_device, bucket) for gradients_on_device in gradients]
        sums.append(backend.allreduce(on_devices))
    return sums


def _pick(gradients: Array, bucket: Bucket) -> tuple[Array, ...]:
    """Return the gradients of a bucket."""
    return tuple(gradients[position] for position in bucket)


def count_reduced_early(
    backend: Backend,
    params: Sequence[Array],
    images: np.ndarray,
    labels: np.ndarray,
    buckets: Sequence[Bucket],
) -> int:
    """Launch a batch's gradients and their exchange; count the buckets that were summed early.

    A bucket is early if its sum is done before any device has its last gradient. Blocks until all
    sums are done.
    """
    backward_passes = launch_gradients(backend, params, images, labels)
    gradients = [backward_pass[1] for backward_pass in backward_passes]
    if backend.engine == "sync":
        # The launches returned when the backward passes had ended.
        return 0
    # An operation behind each backward pass shows when it ends. Its result is a new array, because
    # the exchange overwrites the gradients.
    ends = [
        backend.launch(backend.ops.total, gradients_on_device[0])
        for gradients_on_device in gradients
    ]
    sums = _sum_buckets(backend, gradients, buckets)
    times = completion_times(backend, (*ends, *sums))
    times_of_ends, times_of_sums = times[: len(ends)], times[len(ends) :]
    first_end = min(times_of_ends)
    early = 0
    for time, bucket in zip(times_of_sums, buckets, strict=True):
        # The first parameter's gradient is computed last. So its bucket is never early, even if the
        # thread that waits for it wakes up first.
        has_last_gradient = 0 in bucket
        if not has_last_gradient and time < first_end:
            early += 1
    return early


def sum_over_devices(
    backend: Backend, devices: Sequence[Device], rows: Sequence[Sequence[float]]
) -> np.ndarray:
    """Sum a row of numbers of each device, in float32; return the sum of all rows.

    With several processes, the rows of their devices are summed too.
    """
    loaded = [
        backend.asarray(np.array(row, np.float32), device)
        for row, device in zip(rows, devices, strict=True)
    ]
    sums_on_devices = backend.allreduce(loaded)
    return np.asarray(backend.to_numpy(sums_on_devices[0]))


def largest_replica_difference(backend: Backend, params: Sequence[Array]) -> float:
    """Return the largest relative difference of a device's parameters from the first device's.

    It is 0 if all are equal to the last bit, and infinite if only those of another process differ,
    however little. Processes can only exchange sums, so they sum digests of the parameters.
    """
    replicas = [backend.to_numpy(parameters) for parameters in params]
    differences = []
    for replica in replicas:
        for array, first_array in zip(replica, replicas[0], strict=True):
            differences.append(relative_error(array, first_array))
    difference = largest_of(differences)
    digests = [_digest(replica) for replica in replicas]
    # The sum of the ones is the number of devices. Every process must take part in the sum.
    rows = [(*digest, 1) for digest in digests]
    *sums, devices = sum_over_devices(backend, devices_of(backend, params), rows)
    # Sums of bytes are exact in float32.
    sums_if_equal = np.multiply(digests[0], devices)
    if difference or np.array_equal(sums, sums_if_equal):
        return difference
    return math.inf


def _digest(arrays: Sequence[np.ndarray]) -> list[int]:
    """Return the 32 bytes of a digest of arrays, as numbers below 256."""
    content = b"".join(array.tobytes() for array in arrays)
    return list(hashlib.sha256(content).digest())
