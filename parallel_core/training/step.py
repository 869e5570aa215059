"""One step as the book does it: split the batch, differentiate on every device, sum, update on
every device. A device alone has nothing to exchange, and its step is one launch.

Book: Dive into Deep Learning, "Training on Multiple GPUs". No framework is named here; every value
passes from verb to verb, so that the code shows the schedule. Gradients are exchanged all at once
after the backward pass, or in buckets while it goes on: it computes the last layer's gradients
first. A bucket holds the gradients of some layers, which are exchanged together (Li and others
2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.3). A
bucket is one allreduce of several arrays; none of them is copied for it.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from backends import Array, Backend, Device, Ops
from backends.process_groups import GroupedBackend
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.timing import completion_times
from parallel_core.training.batches import Exchange
from parallel_core.training.lenet import initial_parameters, loss_and_gradients, shapes

PARAMETERS = len(shapes())
Bucket: TypeAlias = "tuple[int, ...]"
"""Positions of parameters whose gradients are exchanged together."""
EXCHANGED_TOGETHER: tuple[Bucket, ...] = (tuple(range(PARAMETERS)),)


def get_params(backend: Backend, device: Device, seed: int = 0, width: int = 1) -> Array:
    """Load the initial parameters on a device."""
    return backend.asarray(initial_parameters(seed, width), device)


def split_batch(
    backend: Backend, images: np.ndarray, labels: np.ndarray, devices: Sequence[Device]
) -> list[tuple[Array, Array]]:
    """Divide a batch's rows over the devices: (images, labels) for each."""
    return list(
        zip(
            backend.split_and_load(images, devices),
            backend.split_and_load(labels, devices),
            strict=True,
        )
    )


def train_batch(
    backend: Backend,
    params: Sequence[Array],
    images: np.ndarray,
    labels: np.ndarray,
    learning_rate: float,
    guarded: Sequence[Array],
    buckets: Sequence[Bucket] = EXCHANGED_TOGETHER,
) -> tuple[list[Array], list[Array], list[Array]]:
    """Launch one step on the global batch; return each device's parameters, guard and summed loss.

    The gradients are of the sum over the global batch, so dividing the rate by its size makes the
    step the same for any number of devices. A gradient that is not finite on any device makes every
    device's sum so, and all devices keep their parameters, in this step and in all later ones with
    its guards. The parameters are consumed.
    """
    rate = learning_rate / len(images)
    if len(params) == 1 and not isinstance(backend, GroupedBackend):
        # Nothing is exchanged: the step is one launch.
        ((x, y),) = split_batch(backend, images, labels, devices_of(backend, params))
        step = backend.launch(whole_step(backend.ops), params[0], x, y, rate, guarded[0])
        return [step[0]], [step[1]], [step[2]]
    backward_passes = launch_gradients(backend, params, images, labels)
    losses = [backward_pass[0] for backward_pass in backward_passes]
    gradients = [backward_pass[1] for backward_pass in backward_passes]
    summed = exchange(backend, gradients, buckets)
    update = backend.ops.sgd_while_finite
    updates = [
        backend.launch(update, p, g, rate, guard)
        for p, g, guard in zip(params, summed, guarded, strict=True)
    ]
    return [updated[0] for updated in updates], [updated[1] for updated in updates], losses


@cache
def whole_step(ops: Ops) -> Callable[..., tuple[Array, Array, Array]]:
    """Make the function (parameters, images, labels, rate, guard) -> (new parameters, guard, sum of
    the rows' losses), for a device that exchanges nothing.
    """
    gradients_of = loss_and_gradients(ops)

    def step(
        parameters: Array, images: Array, labels: Array, rate: float, guard: Array
    ) -> tuple[Array, Array, Array]:
        loss, gradients = gradients_of(parameters, images, labels)
        return *ops.sgd_while_finite(parameters, gradients, rate, guard), loss

    return step


def guards(backend: Backend, params: Sequence[Array]) -> list[Array]:
    """Load a guard for each device that holds parameters: no step was refused yet.

    `ops.sgd_while_finite` takes and returns it.
    """
    return [
        backend.asarray(np.ones(1, np.float32), device) for device in devices_of(backend, params)
    ]


def devices_of(backend: Backend, params: Sequence[Array]) -> tuple[Device, ...]:
    """Return the devices that hold the parameters: the first ones, one for each value."""
    return backend.devices[: len(params)]


def launch_gradients(
    backend: Backend, params: Sequence[Array], images: np.ndarray, labels: np.ndarray
) -> list[Array]:
    """Launch (sum of the rows' losses, its gradients) for each device's share of a batch."""
    compute = loss_and_gradients(backend.ops)
    shards = split_batch(backend, images, labels, devices_of(backend, params))
    return [backend.launch(compute, p, x, y) for p, (x, y) in zip(params, shards, strict=True)]


def buckets_of(exchange: Exchange) -> tuple[Bucket, ...]:
    """Divide the parameters into buckets, in the order of their exchange.

    `after`: one bucket. `during`: one for each layer, its weight and its bias, the last layer
    first.
    """
    if exchange == "after":
        return EXCHANGED_TOGETHER
    return tuple((weight, weight + 1) for weight in reversed(range(0, PARAMETERS, 2)))


def exchange(
    backend: Backend, gradients: Sequence[Array], buckets: Sequence[Bucket]
) -> list[Array]:
    """Launch the exchange of every device's gradients; return the sums for every device.

    The gradients are consumed. `buckets` hold every position once; they are exchanged in their
    order.
    """
    bucket_sums = _sum_buckets(backend, gradients, buckets)
    exchanged = []
    for device in range(len(gradients)):
        # Buckets come in the order of their exchange, gradients in that of the parameters.
        by_position: dict[int, Array] = {}
        for bucket, sums in zip(buckets, bucket_sums, strict=True):
            for item, position in enumerate(bucket):
                by_position[position] = sums[device][item]
        exchanged.append(tuple(by_position[position] for position in sorted(by_position)))
    return exchanged


def _sum_buckets(
    backend: Backend, gradients: Sequence[Array], buckets: Sequence[Bucket]
) -> list[tuple[Array, ...]]:
    """Launch an allreduce for each bucket, in their order; return its sum for every device."""
    sums = []
    for bucket in buckets:
        on_devices = [tuple(of_device[position] for position in bucket) for of_device in gradients]
        sums.append(backend.allreduce(on_devices))
    return sums


def count_reduced_early(
    backend: Backend,
    params: Sequence[Array],
    images: np.ndarray,
    labels: np.ndarray,
    buckets: Sequence[Bucket],
) -> int:
    """Launch a batch's gradients and their exchange; count the sums that were done early.

    These are done before any device had its last gradient. Blocks until all are done.
    """
    backward_passes = launch_gradients(backend, params, images, labels)
    gradients = [backward_pass[1] for backward_pass in backward_passes]
    if backend.engine == "sync":
        # A launch returns when the backward pass has ended.
        return 0
    # Queued behind the backward pass; their results are new arrays, since the exchange overwrites
    # the gradients.
    ends = [backend.launch(backend.ops.total, of_device[0]) for of_device in gradients]
    sums = _sum_buckets(backend, gradients, buckets)
    done = completion_times(backend, (*ends, *sums))
    ends_done, sums_done = done[: len(ends)], done[len(ends) :]
    early = 0
    for time, bucket in zip(sums_done, buckets, strict=True):
        # The first parameter's gradient is the last one: its bucket cannot be early, whichever
        # thread wakes up first.
        if 0 not in bucket and time < min(ends_done):
            early += 1
    return early


def sum_over_devices(
    backend: Backend, devices: Sequence[Device], rows: Sequence[Sequence[float]]
) -> np.ndarray:
    """Sum one vector of numbers per device, in float32, over all devices of the allreduce.

    With several processes these are more than `devices`.
    """
    loaded = [
        backend.asarray(np.array(row, np.float32), device)
        for row, device in zip(rows, devices, strict=True)
    ]
    return np.asarray(backend.to_numpy(backend.allreduce(loaded)[0]))


def largest_replica_difference(backend: Backend, params: Sequence[Array]) -> float:
    """Return the largest relative difference of any device's parameters from the first one's.

    It is 0 if all are equal to the last bit, and infinite if only those of another process differ,
    however little. Processes exchange nothing but sums, so each device's parameters are reduced to
    a digest of 32 whole numbers below 256.
    """
    replicas = [backend.to_numpy(p) for p in params]
    differences = []
    for replica in replicas:
        for array, first_array in zip(replica, replicas[0], strict=True):
            differences.append(relative_error(array, first_array))
    difference = largest_of(differences)
    digests = [_digest(replica) for replica in replicas]
    counted_digests = [(*digest, 1) for digest in digests]
    # Every process takes part, one that has seen a difference too.
    *sums, devices = sum_over_devices(backend, devices_of(backend, params), counted_digests)
    # Sums of bytes are exact: if all digests are equal, the sum is a multiple of each.
    are_equal = np.array_equal(sums, np.multiply([*digests[0]], devices))
    return difference if difference or are_equal else math.inf


def _digest(arrays: Sequence[np.ndarray]) -> bytes:
    """Return the 32 bytes of a digest of arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).digest()
