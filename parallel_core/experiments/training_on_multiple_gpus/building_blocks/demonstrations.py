"""The chapter's small examples: each is a function of a backend that runs one, checks its values and says them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from backends import Array, Backend, Device
from parallel_core.experiments.measuring import largest_error
from parallel_core.training.lenet import initial_parameters, loss_and_gradients
from parallel_core.training.step import get_params

__all__ = ["DEMONSTRATIONS", "SUM", "TRAPS", "Demonstration", "matrix", "ones_and_twos"]

BIAS = 1
"""The place of the first layer's bias among the parameters."""
RATE = np.float32(0.5)
SUM = "allreduce of 1s and 2s"
TRAPS = ("rebinding list items", "shared memory")
"""The names of the examples that show what the functions do, and what goes wrong in them."""


@dataclass(frozen=True)
class Demonstration:
    """What an example showed, and the largest relative error of its values."""

    sentence: str
    error: float


def ones_and_twos(backend: Backend) -> list[Array]:
    """Load 1s on the first device and 2s on the second."""
    return [
        backend.asarray(np.full((1, 2), value, dtype=np.float32), device)
        for value, device in zip((1, 2), backend.devices[:2], strict=True)
    ]


def matrix(rows: int = 4) -> np.ndarray:
    """Make a matrix of five columns that counts from 0."""
    return np.arange(5 * rows, dtype=np.float32).reshape(rows, 5)


def _parameters_on_a_device(backend: Backend) -> Demonstration:
    """Load the parameters and differentiate on no image at all, then on one that is white."""
    device = backend.devices[0]
    params = get_params(backend, device)
    compute = loss_and_gradients(backend.ops)

    def gradients_of(images: int) -> tuple[np.ndarray, ...]:
        white, labels = np.ones((images, 1, 28, 28), dtype=np.float32), np.zeros(images, dtype=np.int32)
        made = backend.launch(compute, params, backend.asarray(white, device), backend.asarray(labels, device))
        return backend.to_numpy(made[1])

    weights, before, after = backend.to_numpy(params), gradients_of(0), gradients_of(1)
    gradient = "is not zero" if np.any(after[BIAS]) else "is still zero"
    start = initial_parameters()
    return Demonstration(
        f"On {device} b1 is {_written(weights[BIAS][:3])}, and its gradient {_written(before[BIAS][:3])} before any "
        f"image was seen (the first 3 of {len(weights[BIAS])}); after one image its gradient {gradient}.",
        largest_error(
            [*weights, *before, np.array(np.any(after[BIAS]))], [*start, *map(np.zeros_like, start), np.array(True)]
        ),
    )


def _allreduce_of_ones_and_twos(backend: Backend) -> Demonstration:
    values = ones_and_twos(backend)
    before = [backend.to_numpy(value) for value in values]
    after = [backend.to_numpy(value) for value in backend.allreduce(values)]
    return Demonstration(
        f"Before allreduce the devices hold {_beside(before)}, after it {_beside(after)}.",
        largest_error([*before, *after], [np.full((1, 2), value) for value in (1, 2, 3, 3)]),
    )


def _an_even_split(backend: Backend) -> Demonstration:
    devices = backend.devices[:2]
    shards = [backend.to_numpy(shard) for shard in backend.split_and_load(matrix(), devices)]
    shares = "; ".join(f"{device} gets {_written(shard)}" for device, shard in zip(devices, shards, strict=True))
    return Demonstration(
        f"A 4 × 5 matrix that counts from 0, split over 2 devices: {shares}.",
        largest_error(shards, [matrix()[:2], matrix()[2:]]),
    )


def _uneven_splits(backend: Backend) -> Demonstration:
    """Divide 5 rows by 2 and 1 row by 3; a device may be named twice if there are only two."""
    five = backend.split_and_load(matrix(5), backend.devices[:2])
    one = backend.split_and_load(matrix(1), [*backend.devices[:2], backend.devices[-1]])
    shards = [backend.to_numpy(shard) for shard in (*five, *one)]
    rows = [len(shard) for shard in shards]
    return Demonstration(
        f"5 rows over 2 devices are {rows[0]} and {rows[1]}; 1 row over 3 is {rows[2]}, {rows[3]} and {rows[4]}: the "
        "first devices get what is left over, and a shard may be empty.",
        largest_error(shards, [matrix(5)[:3], matrix(5)[3:], matrix(1), matrix(0), matrix(0)]),
    )


def _rebinding_list_items(backend: Backend) -> Demonstration:
    """Write an allreduce that puts the sum into its list, and not into the arrays; then one that returns it."""
    gradients = [backend.to_numpy(value) for value in ones_and_twos(backend)]
    _allreduce_that_rebinds(list(gradients))
    sums = [backend.to_numpy(value) for value in backend.allreduce(ones_and_twos(backend))]
    apart = _stepped(backend, gradients)
    together = _stepped(backend, sums)
    return Demonstration(
        f"An allreduce that rebinds list items (`data[i] = …`) leaves gradients {_beside(gradients)}, and a step from "
        f"0 gives parameters {_beside(apart)}; after what `allreduce` returns both are {_once(together)}.",
        largest_error(
            [*gradients, *apart, *sums, *together],
            [np.full((1, 2), value) for value in (3, 2, -1.5, -1, 3, 3, -1.5, -1.5)],
        ),
    )


def _allreduce_that_rebinds(data: list[np.ndarray]) -> None:
    """Sum as a cell of the book once did: the first array is changed, and the others' places get new ones."""
    for other in data[1:]:
        data[0] += other
    for index in range(1, len(data)):
        data[index] = data[0].copy()


def _shared_memory(backend: Backend) -> Demonstration:
    """Update replicas that are one array, then replicas that `copy_to` made."""
    gradient = np.full((1, 2), 1, dtype=np.float32)
    shared = [np.zeros_like(gradient)] * 2
    for replica in shared:
        np.subtract(replica, RATE * gradient, out=replica)
    first = backend.asarray(np.zeros_like(gradient), backend.devices[0])
    second = backend.copy_to(first, backend.devices[1])
    own = [_step(backend, first, gradient, backend.devices[0]), backend.to_numpy(second)]
    return Demonstration(
        f"If both devices hold the same array at 0, each one's step of −{RATE} counts for both: they are at "
        f"{_beside(shared)}; after `copy_to` a step on the first device alone leaves them at {_beside(own)}.",
        largest_error([*shared, *own], [np.full((1, 2), value) for value in (-1, -1, -0.5, 0)]),
    )


def _stepped(backend: Backend, gradients: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Take a step from 0 with each device's own gradient; return the parameters."""
    return [
        _step(backend, backend.asarray(np.zeros_like(gradient), device), gradient, device)
        for gradient, device in zip(gradients, backend.devices[:2], strict=True)
    ]


def _step(backend: Backend, parameter: Array, gradient: np.ndarray, device: Device) -> np.ndarray:
    """Take a step on a device, which consumes the parameter; return where it leads."""
    updated = backend.launch(backend.ops.sgd, (parameter,), (backend.asarray(gradient, device),), float(RATE))
    return backend.to_numpy(updated)[0]


def _beside(arrays: Sequence[np.ndarray]) -> str:
    return " and ".join(map(_written, arrays))


def _once(arrays: Sequence[np.ndarray]) -> str:
    """Write arrays that should be equal: one if they are."""
    return " and ".join(dict.fromkeys(map(_written, arrays)))


def _written(array: np.ndarray) -> str:
    """Write an array in one line, its numbers as short as they are."""
    return np.array2string(array + 0.0, separator=", ", formatter={"float_kind": "{:g}".format}).replace("\n", "")


DEMONSTRATIONS: Mapping[str, Callable[[Backend], Demonstration]] = MappingProxyType(
    {
        "parameters on a device": _parameters_on_a_device,
        SUM: _allreduce_of_ones_and_twos,
        "an even split": _an_even_split,
        "uneven splits": _uneven_splits,
        **dict(zip(TRAPS, (_rebinding_list_items, _shared_memory), strict=True)),
    }
)
