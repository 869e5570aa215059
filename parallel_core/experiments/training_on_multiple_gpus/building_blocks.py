"""Building blocks: what do the chapter's small functions do to a few numbers, and what goes wrong in them?

Book: Dive into Deep Learning, "Training on Multiple GPUs", small examples; the traps are those of the
PyTorch edition, which rebinds list items in `allreduce`, and whose copies to another device are none if
both are one CPU.

Prediction: 1s and 2s become 3s on every device; 4 rows are divided into 2 and 2, 5 into 3 and 2, and if 1 row is
divided over 3 devices, two get nothing. A function that puts its results into the items of a list leaves the arrays
that were in it as they are; an array that two devices hold takes both of their updates.

Method: Each example is run with the verbs of the backend, and its values are compared with those that must come out.
The two traps are set in NumPy, and the verb that avoids them is shown beside them. Then the verbs are timed on these
values.

Look at: The notes, one for each example, with its values; `right_examples`; `allreduce_seconds` and the other times.

Read: A value that is not the expected one makes the result invalid. With so few numbers the times are those of a call;
only `get_params` and `copy_to` handle the whole network.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from types import MappingProxyType

import numpy as np

from backends import Array, Backend, Device
from parallel_core.experiments.runner.changes import Change
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial, Work
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.training.lenet import initial_parameters, loss_and_gradients
from parallel_core.training.step import get_params

__all__ = ["EXPERIMENT", "program"]

BIAS = 1
"""The place of the first layer's bias among the parameters."""
RATE = np.float32(0.5)


def program(trial: Trial) -> None:
    """Run the chapter's examples, then time each verb in them; raises RequestError for a single device."""
    trial.refuse_single_device("building-blocks", "shows two devices")
    backend, (first, second, *_) = trial.backend, trial.devices
    for name, run in EXAMPLES.items():
        example = run(backend)
        trial.check(f"the values of {name!r}", example.found, example.expected)
        trial.notes.append(example.says.format(*map(_written, example.shown or example.found)))
    right = float(sum(error < LARGEST_ERROR for error in trial.errors.values()))
    trial.found(RIGHT.name, Interval(right, right, right))
    params = get_params(backend, first)
    values: list[Array] = []

    def load() -> None:
        # A sum consumes them.
        values[:] = _ones_and_twos(backend)

    # Two numbers a device give their kernels nothing to do, so there are no bare times.
    trial.time("get_params", Work(partial(get_params, backend, first)))
    trial.time("copy_to", Work(lambda: backend.copy_to(params, second)))
    trial.time("split_and_load", Work(lambda: backend.split_and_load(_matrix(), (first, second))))
    trial.time("allreduce", Work(lambda: backend.allreduce(values)), before=load)


@dataclass(frozen=True)
class _Example:
    """What an example says, with places for the arrays that it shows, and its values beside those that must be."""

    says: str
    found: Sequence[np.ndarray]
    expected: Sequence[np.ndarray]
    shown: Sequence[np.ndarray] = ()
    """What is shown, if that is not all that was found."""


def _pairs(*values: float) -> list[np.ndarray]:
    """Make a row of two equal numbers for each value."""
    return [np.full((1, 2), value, dtype=np.float32) for value in values]


def _ones_and_twos(backend: Backend) -> list[Array]:
    """Load 1s on the first device and 2s on the second."""
    return [backend.asarray(pair, device) for pair, device in zip(_pairs(1, 2), backend.devices[:2], strict=True)]


def _matrix(rows: int = 4) -> np.ndarray:
    """Make a matrix of five columns that counts from 0."""
    return np.arange(5 * rows, dtype=np.float32).reshape(rows, 5)


def _parameters_on_a_device(backend: Backend) -> _Example:
    """Load the parameters and differentiate on no image at all, then on one that is white."""
    device = backend.devices[0]
    params = get_params(backend, device)
    compute = loss_and_gradients(backend.ops)

    def gradients_of(images: int) -> Sequence[np.ndarray]:
        white, labels = np.ones((images, 1, 28, 28), dtype=np.float32), np.zeros(images, dtype=np.int32)
        made = backend.launch(compute, params, backend.asarray(white, device), backend.asarray(labels, device))
        gradients: Sequence[np.ndarray] = backend.to_numpy(made[1])
        return gradients

    weights, before, after = backend.to_numpy(params), gradients_of(0), gradients_of(1)
    start = initial_parameters()
    return _Example(
        "On its device b1 begins with {}; the largest number in its gradient is {} before any image and {} after one.",
        [*weights, *before, np.asarray(np.any(after[BIAS]))],
        [*start, *map(np.zeros_like, start), np.asarray(True)],
        shown=[weights[BIAS][:3], *(np.abs(gradients[BIAS]).max() for gradients in (before, after))],
    )


def _sum_of_ones_and_twos(backend: Backend) -> _Example:
    """Sum the two devices' values."""
    values = _ones_and_twos(backend)
    before = [backend.to_numpy(value) for value in values]
    after = [backend.to_numpy(value) for value in backend.allreduce(values)]
    says = "Before allreduce the devices hold {} and {}, after it {} and {}."
    return _Example(says, [*before, *after], _pairs(1, 2, 3, 3))


def _even_split(backend: Backend) -> _Example:
    """Divide 4 rows by 2."""
    shards = [backend.to_numpy(shard) for shard in backend.split_and_load(_matrix(), backend.devices[:2])]
    says = "Of a 4 × 5 matrix that counts from 0, the first device gets {} and the second one {}."
    return _Example(says, shards, [_matrix()[:2], _matrix()[2:]])


def _uneven_splits(backend: Backend) -> _Example:
    """Divide 5 rows by 2 and 1 row by 3; a device may be named twice if there are only two."""
    five = backend.split_and_load(_matrix(5), backend.devices[:2])
    one = backend.split_and_load(_matrix(1), [*backend.devices[:2], backend.devices[-1]])
    shards = [backend.to_numpy(shard) for shard in (*five, *one)]
    return _Example(
        "5 rows over 2 devices are {} and {}; 1 row over 3 devices is {}, {} and {}: a shard may be empty.",
        shards,
        [_matrix(5)[:3], _matrix(5)[3:], _matrix(1), _matrix(0), _matrix(0)],
        shown=[np.asarray(len(shard)) for shard in shards],
    )


def _rebinding_list_items(backend: Backend) -> _Example:
    """Write an allreduce that puts the sum into its list, and not into the arrays; then one that returns it."""
    gradients = [backend.to_numpy(value) for value in _ones_and_twos(backend)]
    _allreduce_that_rebinds(list(gradients))
    sums = [backend.to_numpy(value) for value in backend.allreduce(_ones_and_twos(backend))]

    def stepped(each: Sequence[np.ndarray]) -> list[np.ndarray]:
        loaded = [(backend.asarray(_pairs(0)[0], device), device) for device in backend.devices[:2]]
        return [_step(backend, zeros, gradient, device) for (zeros, device), gradient in zip(loaded, each, strict=True)]

    return _Example(
        "An allreduce that rebinds list items (`data[i] = …`) leaves gradients {} and {}, and a step from 0 leads to "
        "{} and {}; one that returns its sums gives {} and {}, and a step leads to {} and {}.",
        [*gradients, *stepped(gradients), *sums, *stepped(sums)],
        _pairs(3, 2, -1.5, -1, 3, 3, -1.5, -1.5),
    )


def _allreduce_that_rebinds(data: list[np.ndarray]) -> None:
    """Sum as a cell of the book once did: the first array is changed, and the others' places get new ones."""
    for other in data[1:]:
        data[0] += other
    for index in range(1, len(data)):
        data[index] = data[0].copy()


def _shared_memory(backend: Backend) -> _Example:
    """Update replicas that are one array, then replicas that `copy_to` made."""
    gradient, zeros = _pairs(1, 0)
    shared = [zeros.copy()] * 2
    for replica in shared:
        np.subtract(replica, RATE * gradient, out=replica)
    first = backend.asarray(zeros, backend.devices[0])
    second = backend.copy_to(first, backend.devices[1])
    own = [_step(backend, first, gradient, backend.devices[0]), backend.to_numpy(second)]
    return _Example(
        "If two devices hold the same array at 0, a step of −0.5 on each leads to {} and {}; after `copy_to`, a step "
        "on the first device only leads to {} and {}.",
        [*shared, *own],
        _pairs(-1, -1, -0.5, 0),
    )


def _step(backend: Backend, parameter: Array, gradient: np.ndarray, device: Device) -> np.ndarray:
    """Take a step on a device, which consumes the parameter; return where it leads."""
    updated = backend.launch(backend.ops.sgd, (parameter,), (backend.asarray(gradient, device),), float(RATE))
    led: np.ndarray = backend.to_numpy(updated)[0]
    return led


def _written(array: np.ndarray) -> str:
    """Write an array in one line, its numbers as short as they are."""
    return np.array2string(array + 0.0, separator=", ", formatter={"float_kind": "{:g}".format}).replace("\n", "")


EXAMPLES: Mapping[str, Callable[[Backend], _Example]] = MappingProxyType(
    {
        "allreduce of 1s and 2s": _sum_of_ones_and_twos,
        "rebinding list items": _rebinding_list_items,
        "shared memory": _shared_memory,
        "parameters on a device": _parameters_on_a_device,
        "an even split": _even_split,
        "uneven splits": _uneven_splits,
    }
)

RIGHT = Metric(
    "right_examples",
    at_most=lambda _: len(EXAMPLES),
    bands=(
        Band(LOWEST, "wrong", "An example gave values that must not come out"),
        Band(len(EXAMPLES), "right", "Every example gave the values that must come out"),
    ),
)

EXPERIMENT = Experiment(
    name="building-blocks",
    position=3,
    remark="small examples",
    program=program,
    case="allreduce",
    metrics=(
        Metric(
            "allreduce_seconds",
            itemgetter("allreduce"),
            means="the seconds that it takes to sum one small vector of each device",
        ),
        RIGHT,
        *(Metric(f"{verb}_seconds", itemgetter(verb)) for verb in ("get_params", "copy_to", "split_and_load")),
    ),
    changes=(
        Change(
            lambda _: True,
            "Nothing would: the values are the same on every backend, engine (--engine sync) and number of --devices; "
            "only the times differ.",
        ),
    ),
    # Its answer is of values.
    queued_case="get_params",
    options={"full": {"rounds": 50}, "quick": {"rounds": 20}},
)
