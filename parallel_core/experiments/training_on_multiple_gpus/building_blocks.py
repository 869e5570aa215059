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
from typing import NamedTuple

import numpy as np

from backends import Array, Backend, Device
from parallel_core.experiments.runner.changes import Change
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.measurement.result import Note
from parallel_core.training.lenet import initial_parameters, loss_and_gradients
from parallel_core.training.step import get_params

Arrays = Sequence[np.ndarray]


class Example(NamedTuple):
    """The values of an example, and the sentence that shows them."""

    sentence: str
    """A text with a place `{}` for each array in `shown`."""
    values: Arrays
    """The values that the backend computed."""
    expected: Arrays
    """The values that must come out."""
    shown: Arrays


RATE = np.float32(0.5)


def program(trial: Trial) -> None:
    """Run the chapter's examples, then time each verb in them.

    Raises RequestError for a single device.
    """
    trial.refuse_single_device("building-blocks", "shows two devices")
    backend, (first, second, *_) = trial.backend, trial.devices
    for run in EXAMPLES:
        example = run(backend)
        title = run.__name__.replace("_", " ")
        trial.check(f"the values of {title!r}", example.values, example.expected)
        shown = [written(array) for array in example.shown]
        trial.notes.append(Note("example", example.sentence.format(*shown)))
    right_examples = [error for error in trial.errors.values() if error < LARGEST_ERROR]
    trial.found("right_examples", len(right_examples))
    params = get_params(backend, first)
    values: list[Array] = []

    def load() -> None:
        # Each sum consumes its values.
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
    """Load the parameters; compute the gradients of no image, and those of one white image."""
    device = backend.devices[0]
    params = get_params(backend, device)
    initial = initial_parameters()

    def gradients_of(images: int) -> Arrays:
        white = backend.asarray(np.ones((images, 1, 28, 28), dtype=np.float32), device)
        labels = backend.asarray(np.zeros(images, dtype=np.int32), device)
        _loss, gradients = backend.to_numpy(
            backend.launch(loss_and_gradients(backend.ops), params, white, labels)
        )
        return gradients

    loaded = backend.to_numpy(params)
    of_no_image = gradients_of(0)
    of_one_image = gradients_of(1)
    # The first layer's bias is the second parameter, after its weight.
    bias = loaded[1]
    largest_before = np.abs(of_no_image[1]).max()
    largest_after = np.abs(of_one_image[1]).max()
    return Example(
        "On its device b1 begins with {}; the largest number in its gradient is {} before any "
        "image and {} after one.",
        values=[*loaded, *of_no_image, np.asarray(np.any(of_one_image[1]))],
        expected=[*initial, *map(np.zeros_like, initial), np.asarray(True)],
        shown=[bias[:3], largest_before, largest_after],
    )


def allreduce_of_1s_and_2s(backend: Backend) -> Example:
    """Sum the two devices' values."""
    on_devices = ones_and_twos(backend)
    before = [backend.to_numpy(value) for value in on_devices]
    after = [backend.to_numpy(total) for total in backend.allreduce(on_devices)]
    values = [*before, *after]
    return Example(
        "Before allreduce the devices hold {} and {}, after it {} and {}.",
        values,
        expected=pairs(1, 2, 3, 3),
        shown=values,
    )


def an_even_split(backend: Backend) -> Example:
    """Divide 4 rows over 2 devices."""
    on_devices = backend.split_and_load(matrix(), backend.devices[:2])
    shards = [backend.to_numpy(shard) for shard in on_devices]
    return Example(
        "Of a 4 × 5 matrix that counts from 0, the first device gets {} and the second one {}.",
        shards,
        expected=[matrix()[:2], matrix()[2:]],
        shown=shards,
    )


def uneven_splits(backend: Backend) -> Example:
    """Divide 5 rows over 2 devices, and 1 row over 3, of which the last may be named twice."""
    first, second, third = *backend.devices[:2], backend.devices[-1]
    shards_of_five = backend.split_and_load(matrix(5), [first, second])
    shards_of_one = backend.split_and_load(matrix(1), [first, second, third])
    shards = [backend.to_numpy(shard) for shard in (*shards_of_five, *shards_of_one)]
    return Example(
        "5 rows over 2 devices are {} and {}; 1 row over 3 devices is {}, {} and {}: a shard may "
        "be empty.",
        shards,
        expected=[matrix(5)[:3], matrix(5)[3:], matrix(1), matrix(0), matrix(0)],
        shown=[np.asarray(len(shard)) for shard in shards],
    )


def rebinding_list_items(backend: Backend) -> Example:
    """Put sums into the items of a list, which leaves an array without its sum; beside it, call the
    allreduce that returns its sums.
    """
    gradients = [backend.to_numpy(value) for value in ones_and_twos(backend)]
    # A cell of the book once did this: the first array is changed, but the second item of the list
    # becomes a new array, and the second gradient stays as it is.
    items = list(gradients)
    items[0] += items[1]
    items[1] = items[0].copy()
    sums = [backend.to_numpy(total) for total in backend.allreduce(ones_and_twos(backend))]

    def steps_from_zero(gradients: Arrays) -> list[np.ndarray]:
        zeros = np.zeros((1, 2), dtype=np.float32)
        ends = []
        for gradient, device in zip(gradients, backend.devices, strict=False):
            parameter = backend.asarray(zeros, device)
            ends.append(step(backend, parameter, gradient, device))
        return ends

    values = [*gradients, *steps_from_zero(gradients), *sums, *steps_from_zero(sums)]
    return Example(
        "An allreduce that rebinds list items (`data[i] = …`) leaves gradients {} and {}, and a "
        "step from 0 leads to {} and {}; one that returns its sums gives {} and {}, and a step "
        "leads to {} and {}.",
        values,
        expected=pairs(3, 2, -1.5, -1, 3, 3, -1.5, -1.5),
        shown=values,
    )


def shared_memory(backend: Backend) -> Example:
    """Update replicas that are one array, then replicas that `copy_to` made."""
    gradient, zeros = pairs(1, 0)
    shared = [zeros.copy()] * 2
    for replica in shared:
        np.subtract(replica, RATE * gradient, out=replica)
    first = backend.asarray(zeros, backend.devices[0])
    second = backend.copy_to(first, backend.devices[1])
    updated = step(backend, first, gradient, backend.devices[0])
    values = [*shared, updated, backend.to_numpy(second)]
    return Example(
        "If two devices hold the same array at 0, a step of −0.5 on each leads to {} and {}; after "
        "`copy_to`, a step on the first device only leads to {} and {}.",
        values,
        expected=pairs(-1, -1, -0.5, 0),
        shown=values,
    )


def step(backend: Backend, parameter: Array, gradient: np.ndarray, device: Device) -> np.ndarray:
    """Take a step on a device, which consumes the parameter; return the new value."""
    on_device = backend.asarray(gradient, device)
    updated = backend.launch(backend.ops.sgd, (parameter,), (on_device,), float(RATE))
    new_value: np.ndarray
    (new_value,) = backend.to_numpy(updated)
    return new_value


def written(array: np.ndarray) -> str:
    """Write an array in one line, without trailing zeros."""
    # Adding 0.0 turns integers into floats, and -0.0 into 0.0.
    text = np.array2string(array + 0.0, separator=", ", formatter={"float_kind": "{:g}".format})
    return text.replace("\n", "")


EXAMPLES: Sequence[Callable[[Backend], Example]] = (
    allreduce_of_1s_and_2s,
    rebinding_list_items,
    shared_memory,
    parameters_on_a_device,
    an_even_split,
    uneven_splits,
)
"""The examples; the names of their functions are shown."""

EXPERIMENT = Experiment(
    name="building-blocks",
    question="What do the chapter's small functions do?",
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
    # The answer does not depend on times.
    queued_case="get_params",
    options={"full": {"rounds": 50}, "quick": {"rounds": 20}},
)
