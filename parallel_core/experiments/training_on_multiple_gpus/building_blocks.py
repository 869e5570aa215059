"""Building blocks: what do the chapter's small functions do to a few numbers, and what goes wrong
in them?

Book: Dive into Deep Learning, "Training on Multiple GPUs", small examples; the traps are those of
the PyTorch edition, which rebinds list items in `allreduce`, and whose copies to another device are
none if both are one CPU.

Prediction: 1s and 2s become 3s on every device; 4 rows are divided into 2 and 2, 5 into 3 and 2,
and if 1 row is divided over 3 devices, two get nothing. A function that puts its results into the
items of a list leaves the arrays that were in it as they are; an array that two devices hold takes
both of their updates.

Method: Each example is run with the verbs of the backend, and its values are compared with those
that must come out. The two traps are set in NumPy, and the verb that avoids them is shown beside
them. Then the verbs are timed on these values.

Look at: The notes, one for each example, with its values; `right_examples`; `allreduce_seconds` and
the other times.

Read: A value that is not the expected one makes the result invalid. With so few numbers the times
are those of a call; only `get_params` and `copy_to` handle the whole network.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from backends import Array, Backend, Device
from parallel_core.experiments.runner.changes import Change
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial, Work
from parallel_core.training.lenet import initial_parameters, loss_and_gradients
from parallel_core.training.step import get_params

Arrays: TypeAlias = Sequence[np.ndarray]
Example: TypeAlias = tuple[str, Arrays, Arrays, Arrays]
"""A sentence with places for arrays, the values that were found, those that must be found, and
those to be written.
"""

RATE = np.float32(0.5)


def program(trial: Trial) -> None:
    """Run the chapter's examples, then time each verb in them.

    Raises RequestError for a single device.
    """
    trial.refuse_single_device("building-blocks", "shows two devices")
    backend, (first, second, *_) = trial.backend, trial.devices
    for run in EXAMPLES:
        says, found, expected, to_write = run(backend)
        trial.check(f"the values of {run.__name__.replace('_', ' ')!r}", found, expected)
        trial.notes.append(says.format(*map(written, to_write)))
    trial.found("right_examples", sum(error < LARGEST_ERROR for error in trial.errors.values()))
    params = get_params(backend, first)
    values: list[Array] = []

    def load() -> None:
        # A sum consumes them.
        values[:] = ones_and_twos(backend)

    # Two numbers a device give their kernels nothing to do, so there are no bare times.
    trial.time("get_params", Work(partial(get_params, backend, first)))
    trial.time("copy_to", Work(lambda: backend.copy_to(params, second)))
    trial.time("split_and_load", Work(lambda: backend.split_and_load(matrix(), (first, second))))
    trial.time("allreduce", Work(lambda: backend.allreduce(values)), before=load)


def pairs(*values: float) -> list[np.ndarray]:
    """Make a row of two equal numbers for each value."""
    return [np.full((1, 2), value, dtype=np.float32) for value in values]


def ones_and_twos(backend: Backend) -> list[Array]:
    """Load 1s on the first device and 2s on the second."""
    return [
        backend.asarray(pair, device)
        for pair, device in zip(pairs(1, 2), backend.devices[:2], strict=True)
    ]


def matrix(rows: int = 4) -> np.ndarray:
    """Make a matrix of five columns that counts from 0."""
    return np.arange(5 * rows, dtype=np.float32).reshape(rows, 5)


def parameters_on_a_device(backend: Backend) -> Example:
    """Load the parameters and differentiate on no image at all, then on one that is white."""
    device = backend.devices[0]
    params, start = get_params(backend, device), initial_parameters()

    def gradients_of(images: int) -> Arrays:
        white, labels = (
            np.ones((images, 1, 28, 28), dtype=np.float32),
            np.zeros(images, dtype=np.int32),
        )
        batch = (backend.asarray(x, device) for x in (white, labels))
        gradients: Arrays = backend.to_numpy(
            backend.launch(loss_and_gradients(backend.ops), params, *batch)[1]
        )
        return gradients

    weights, before, after = backend.to_numpy(params), gradients_of(0), gradients_of(1)
    # Of the first layer; its weight stands before it.
    biases = [each[1] for each in (weights, before, after)]
    return (
        (
            "On its device b1 begins with {}; the largest number in its gradient is {} before any "
            "image and {} after one."
        ),
        [*weights, *before, np.asarray(np.any(biases[2]))],
        [*start, *map(np.zeros_like, start), np.asarray(True)],
        [biases[0][:3], *(np.abs(gradient).max() for gradient in biases[1:])],
    )


def allreduce_of_1s_and_2s(backend: Backend) -> Example:
    """Sum the two devices' values."""
    values = ones_and_twos(backend)
    before = [backend.to_numpy(value) for value in values]
    found = [*before, *map(backend.to_numpy, backend.allreduce(values))]
    return (
        "Before allreduce the devices hold {} and {}, after it {} and {}.",
        found,
        pairs(1, 2, 3, 3),
        found,
    )


def an_even_split(backend: Backend) -> Example:
    """Divide 4 rows by 2."""
    shards = [
        backend.to_numpy(shard) for shard in backend.split_and_load(matrix(), backend.devices[:2])
    ]
    says = "Of a 4 × 5 matrix that counts from 0, the first device gets {} and the second one {}."
    return says, shards, [matrix()[:2], matrix()[2:]], shards


def uneven_splits(backend: Backend) -> Example:
    """Divide 5 rows by 2 and 1 row by 3; a device may be named twice if there are only two."""
    five = backend.split_and_load(matrix(5), backend.devices[:2])
    one = backend.split_and_load(matrix(1), [*backend.devices[:2], backend.devices[-1]])
    shards = [backend.to_numpy(shard) for shard in (*five, *one)]
    return (
        (
            "5 rows over 2 devices are {} and {}; 1 row over 3 devices is {}, {} and {}: a shard "
            "may "
            "be empty."
        ),
        shards,
        [matrix(5)[:3], matrix(5)[3:], matrix(1), matrix(0), matrix(0)],
        [np.asarray(len(shard)) for shard in shards],
    )


def rebinding_list_items(backend: Backend) -> Example:
    """Write an allreduce that puts the sum into its list, and not into the arrays.

    Then write one that returns it.
    """
    gradients = [backend.to_numpy(value) for value in ones_and_twos(backend)]
    # As a cell of the book once did: the first array is changed, and the other's place gets a new
    # one.
    items = list(gradients)
    items[0] += items[1]
    items[1] = items[0].copy()
    sums = [backend.to_numpy(value) for value in backend.allreduce(ones_and_twos(backend))]

    def stepped(each: Arrays) -> list[np.ndarray]:
        zeros = np.zeros((1, 2), dtype=np.float32)
        devices = zip(each, backend.devices, strict=False)
        return [
            step(backend, backend.asarray(zeros, device), gradient, device)
            for gradient, device in devices
        ]

    found = [*gradients, *stepped(gradients), *sums, *stepped(sums)]
    says = (
        "An allreduce that rebinds list items (`data[i] = …`) leaves gradients {} and {}, and a "
        "step from 0 leads to "
        "{} and {}; one that returns its sums gives {} and {}, and a step leads to {} and {}."
    )
    return says, found, pairs(3, 2, -1.5, -1, 3, 3, -1.5, -1.5), found


def shared_memory(backend: Backend) -> Example:
    """Update replicas that are one array, then replicas that `copy_to` made."""
    gradient, zeros = pairs(1, 0)
    shared = [zeros.copy()] * 2
    for replica in shared:
        np.subtract(replica, RATE * gradient, out=replica)
    first = backend.asarray(zeros, backend.devices[0])
    second = backend.copy_to(first, backend.devices[1])
    found = [*shared, step(backend, first, gradient, backend.devices[0]), backend.to_numpy(second)]
    says = (
        "If two devices hold the same array at 0, a step of −0.5 on each leads to {} and {}; after "
        "`copy_to`, a step "
        "on the first device only leads to {} and {}."
    )
    return says, found, pairs(-1, -1, -0.5, 0), found


def step(backend: Backend, parameter: Array, gradient: np.ndarray, device: Device) -> np.ndarray:
    """Take a step on a device, which consumes the parameter; return where it leads."""
    updated = backend.launch(
        backend.ops.sgd, (parameter,), (backend.asarray(gradient, device),), float(RATE)
    )
    led: np.ndarray = backend.to_numpy(updated)[0]
    return led


def written(array: np.ndarray) -> str:
    """Write an array in one line, its numbers as short as they are."""
    return np.array2string(
        array + 0.0, separator=", ", formatter={"float_kind": "{:g}".format}
    ).replace("\n", "")


EXAMPLES: Sequence[Callable[[Backend], Example]] = (
    allreduce_of_1s_and_2s,
    rebinding_list_items,
    shared_memory,
    parameters_on_a_device,
    an_even_split,
    uneven_splits,
)
"""They are called as their functions are."""

EXPERIMENT = Experiment(
    name="building-blocks",
    summary="What do the chapter's small functions do?",
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
        Metric(
            "right_examples",
            at_most=lambda _: len(EXAMPLES),
            bands=(
                Band(LOWEST, "wrong", "An example gave values that must not come out"),
                Band(len(EXAMPLES), "right", "Every example gave the values that must come out"),
            ),
        ),
        *(
            Metric(f"{verb}_seconds", itemgetter(verb))
            for verb in ("get_params", "copy_to", "split_and_load")
        ),
    ),
    changes=(
        Change(
            lambda _: True,
            "Nothing would: the values are the same on every backend, engine (--engine sync) and "
            "number of --devices; "
            "only the times differ.",
        ),
    ),
    # Its answer is of values.
    queued_case="get_params",
    options={"full": {"rounds": 50}, "quick": {"rounds": 20}},
)
