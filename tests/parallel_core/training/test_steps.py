"""The same numbers on every framework and number of devices, and training that stops at numbers
that are not finite.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import TypeVar

import numpy as np
import pytest

import backends
from backends import Array, Backend, Ops
from backends.process_groups import Group, GroupedBackend
from parallel_core.training import step as training_step
from parallel_core.training.batches import Epoch, Exchange, Settings, as_input, batches
from parallel_core.training.dataset import Dataset, load_fashion_mnist, synthetic
from parallel_core.training.lenet import initial_parameters, shapes
from parallel_core.training.loop import NotFiniteError, evaluate, train
from parallel_core.training.step import (
    buckets_of,
    count_reduced_early,
    guards,
    largest_replica_difference,
    train_batch,
)
from tests.backends.process_groups.threads import together

Returned = TypeVar("Returned")
REFERENCE = backends.load("numpy", devices=1, threads_per_device=1)
SYNTHETIC = synthetic("a test needs no more", train=600, test=100)
FEW = synthetic("a test needs no more", train=75, test=10)


@cache
def real_data() -> Dataset:
    """Fashion-MNIST, with a test set cut short: evaluation is not what is compared."""
    data = load_fashion_mnist()
    if data.source.startswith("synthetic"):
        pytest.skip(data.source)
    return data.tested_on(7)


def loaded(backend: Backend, parameters: Sequence[np.ndarray] | None = None) -> list[Array]:
    """Load parameters on every device: the initial ones, unless others are given."""
    values = initial_parameters() if parameters is None else parameters
    return [backend.asarray(values, device) for device in backend.devices]


def learning() -> tuple[np.ndarray, ...]:
    """Return parameters that learn a few images at once.

    From the book's weights, which are smaller, the loss leaves its plateau late.
    """
    return tuple(8 * parameter for parameter in initial_parameters())


def first_epoch(backend: Backend, data: Dataset, settings: Settings) -> Epoch:
    """Return the first epoch of a training from the initial parameters."""
    parameters = loaded(backend, initial_parameters(settings.seed))
    return next(train(backend, parameters, data, settings))


def first_step(
    backend: Backend, images: np.ndarray, labels: np.ndarray
) -> tuple[list[Array], list[Array]]:
    """Return the parameters on every device after a first step, and the devices' losses."""
    parameters = loaded(backend)
    updated, _, losses = train_batch(
        backend, parameters, images, labels, 0.2, guards(backend, parameters)
    )
    return updated, losses


@cache
def numpy_losses(batch_size: int, steps: int) -> tuple[float, ...]:
    """Return the losses of the first steps on real data with NumPy."""
    return first_epoch(REFERENCE, real_data(), Settings(1, batch_size, limit=steps)).losses


def assert_alike(
    arrays: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float = 0, atol: float = 0
) -> None:
    """Check that arrays are equal, or nearly."""
    for array, expected_array in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(array, expected_array, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("batch_size", "devices", "steps"), [(128, 2, 2), (64, 3, 4), (25, 1, 8)])
def test_the_first_losses_equal_numpy_s(
    load: Callable[[int], Backend], batch_size: int, devices: int, steps: int
) -> None:
    expected = numpy_losses(batch_size, steps)
    losses = first_epoch(load(devices), real_data(), Settings(1, batch_size, limit=steps)).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    plateau = math.log(10)
    assert losses[0] == pytest.approx(plateau, rel=1e-2)
    # Near the plateau losses must differ from batch to batch, or constants are compared.
    assert len(set(losses)) == steps


@pytest.mark.parametrize("rows", [1, 5])
def test_a_step_on_fewer_or_uneven_rows_equals_numpy_s(backend: Backend, rows: int) -> None:
    images = SYNTHETIC.train_images[:rows, None].astype(np.float32) / 255
    labels = SYNTHETIC.train_labels[:rows]
    (expected, *_), _ = first_step(REFERENCE, images, labels)
    updated, losses = first_step(backend, images, labels)
    for replica in map(backend.to_numpy, updated):
        assert_alike(replica, expected, rtol=1e-4, atol=1e-7)
    # Devices without rows have no loss.
    have_loss = [float(loss) > 0 for loss in backend.to_numpy(tuple(losses))]
    assert have_loss == [device < rows for device in range(3)]


def test_training_learns_and_is_evaluated_as_numpy_would(backend: Backend) -> None:
    start = learning()
    parameters = loaded(backend, start)
    data = synthetic("a test needs no more", train=160, test=60)
    *_, last_epoch = train(backend, parameters, data, Settings(4, 16, 0.1))
    assert last_epoch.accuracy > 0.9
    assert last_epoch.losses[-1] < 0.5
    for values in (start, backend.to_numpy(parameters[0])):
        accuracy = evaluate(backend, loaded(backend, values), data)
        assert accuracy == evaluate(REFERENCE, loaded(REFERENCE, values), data)


def test_a_loss_that_is_not_finite_names_step_and_device_and_changes_nothing(
    backend: Backend,
) -> None:
    parameters = loaded(backend)
    broken = backend.to_numpy(parameters[1])
    broken[-1][0] = math.nan
    parameters[1] = backend.asarray(broken, backend.devices[1])
    before = [backend.to_numpy(replica) for replica in parameters]
    with pytest.raises(NotFiniteError, match=r"the loss is nan on cpu:2 in epoch 1, step 1 .*--lr"):
        next(train(backend, parameters, SYNTHETIC, Settings(1, 60)))
    for replica, expected in zip(parameters, before, strict=True):
        assert_alike(backend.to_numpy(replica), expected)


def spoil_gradients(
    backend: Backend, step: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make gradients of the last device NaN, and its loss not.

    It happens `times` times, in turn, from a step on; steps are numbered from 0.
    """
    loss_and_gradients = training_step.loss_and_gradients(backend.ops)
    steps = count()

    def spoilt_on_last_device(parameters: Array, images: Array, labels: Array) -> Array:
        loss, gradients = loss_and_gradients(parameters, images, labels)
        # Of 29 images the last of three devices has 9; the others have 10.
        is_last_device = labels.shape[0] == 9
        factor = math.nan if is_last_device else 1.0
        *others, last_gradient = gradients
        return loss, (*others, backend.ops.multiply(last_gradient, factor))

    def function_of_step(_: Ops) -> Callable[..., Array]:
        # A step asks once, for all devices.
        is_spoilt = step <= next(steps) < step + times
        return spoilt_on_last_device if is_spoilt else loss_and_gradients

    monkeypatch.setattr(training_step, "loss_and_gradients", function_of_step)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            10,
            r"the gradients on cpu:3 are not finite in epoch 1, step 3 \(",
        ),
        # The fault does not come back when the step is computed again.
        (1, r"the gradients summed over all devices are not finite in epoch 1, step 3 \("),
    ],
    ids=["lasting", "passing"],
)
def test_gradients_that_are_not_finite_change_no_parameter_on_any_device(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, times: int, message: str
) -> None:
    settings = Settings(1, 29, limit=4)
    expected = loaded(backend)
    next(train(backend, expected, SYNTHETIC, replace(settings, limit=2)))
    parameters = loaded(backend)
    spoil_gradients(backend, 2, times, monkeypatch)
    with pytest.raises(NotFiniteError, match=message) as caught:
        next(train(backend, parameters, SYNTHETIC, settings))
    assert caught.value.devices == (backend.devices[2:] if times > 1 else ())
    # The next step was queued before the fault was noticed: it must not have changed anything
    # either.
    for replica in map(backend.to_numpy, parameters):
        assert_alike(replica, backend.to_numpy(expected[0]), rtol=1e-6, atol=1e-8)
    # Training can go on from these parameters.
    monkeypatch.undo()
    epoch = next(train(backend, parameters, SYNTHETIC, settings))
    assert all(math.isfinite(loss) for loss in epoch.losses)


DEVICE_COUNTS = (2, 1)
"""Of the processes in a group."""


def in_group(program: Callable[[Backend], Returned]) -> list[Returned]:
    """Run a program in each of two processes, with two devices and one; return what they
    returned.
    """

    def of_rank(group: Group) -> Returned:
        local = backends.load("numpy", DEVICE_COUNTS[group.rank], threads_per_device=1)
        return program(GroupedBackend(local, group, DEVICE_COUNTS, lambda _: None))

    return together(len(DEVICE_COUNTS), of_rank)


def test_losses_and_accuracy_are_of_all_processes_rows() -> None:
    def trained(backend: Backend) -> list[Epoch]:
        return list(train(backend, loaded(backend, learning()), FEW, Settings(2, 32)))

    expected_epochs = trained(REFERENCE)
    assert expected_epochs[-1].losses[-1] < expected_epochs[0].losses[0]
    for epochs_of_rank in in_group(trained):
        for epoch, expected in zip(epochs_of_rank, expected_epochs, strict=True):
            np.testing.assert_allclose(epoch.losses, expected.losses, rtol=1e-4)
            assert epoch.accuracy == expected.accuracy


DEVICES_OF_GROUP = [(0, 0), (0, 1), (1, 0)]
"""Each device's rank and its place among the devices of that rank."""


@pytest.mark.parametrize("differing", [None, *DEVICES_OF_GROUP])
def test_every_rank_finds_whether_a_device_differs(differing: tuple[int, int] | None) -> None:
    def largest_difference(backend: Backend) -> float:
        rank = DEVICE_COUNTS.index(len(backend.devices))
        replicas = []
        for place, device in enumerate(backend.devices):
            value = 2 if (rank, place) == differing else 1
            parameters = (np.full(3, value, np.float32),)
            replicas.append(backend.asarray(parameters, device))
        return largest_replica_difference(backend, replicas)

    for difference in in_group(largest_difference):
        assert (difference == 0) == (differing is None)


def test_progress_is_reported_batch_by_batch() -> None:
    reported: list[tuple[int, int]] = []

    def on_batch(epoch: int, images: int) -> None:
        reported.append((epoch, images))

    list(train(REFERENCE, loaded(REFERENCE), FEW, Settings(2, 32, limit=3), on_batch))
    assert reported == [(1, 32), (1, 32), (1, 11), (2, 32), (2, 32), (2, 11)]


def test_batches_cover_the_data_in_an_order_of_seed_and_epoch() -> None:
    def labels(epoch: int = 1, **settings: int) -> list[int]:
        """Return the labels of an epoch, batch after batch."""
        _, labels_of_batches = zip(*batches(SYNTHETIC, Settings(**settings), epoch), strict=True)
        return np.concatenate(labels_of_batches).tolist()

    all_labels = labels(batch_size=256)
    assert sorted(all_labels) == sorted(SYNTHETIC.train_labels.tolist())
    assert labels(batch_size=256) == all_labels
    assert labels(batch_size=256, epoch=2) != all_labels
    assert labels(batch_size=256, seed=1) != all_labels
    assert labels(batch_size=100, limit=2) == all_labels[:200]


@pytest.mark.parametrize("exchange", ["after", "during"])
def test_replicas_have_memory_of_their_own(backend: Backend, exchange: Exchange) -> None:
    parameters = loaded(backend)
    next(train(backend, parameters, FEW, Settings(1, 20, limit=3, exchange=exchange)))
    before = backend.to_numpy(parameters[0])
    gradients = backend.asarray(tuple(np.ones_like(array) for array in before), backend.devices[0])
    launched = backend.launch(backend.ops.sgd, parameters[0], gradients, 1.0)
    for updated, array in zip(backend.to_numpy(launched), before, strict=True):
        assert (updated != array).all()
    assert_alike(backend.to_numpy(parameters[1]), before)


RESULTS_TOGETHER = ("jax",)
"""Backends whose launches give all gradients at once, at their end."""


def test_buckets_are_reduced_before_backward_has_ended_where_work_is_queued(
    backend: Backend,
) -> None:
    parameters = loaded(backend)
    # Without a queue nothing can be overtaken, and a short pass is enough.
    rows = slice(None if backend.engine == "async" else 60)
    images, labels = as_input(SYNTHETIC.train_images[rows]), SYNTHETIC.train_labels[rows]

    def reduced_early(exchange: Exchange) -> int:
        return count_reduced_early(backend, parameters, images, labels, buckets_of(exchange))

    assert reduced_early("after") == 0
    if backend.engine == "sync" or backend.name in RESULTS_TOGETHER:
        assert reduced_early("during") == 0
        return
    # Where other programs keep the cores busy, a step may show nothing of it.
    for _ in range(30):
        buckets = reduced_early("during")
        if buckets:
            break
    # The first layer's gradient is the last one, so its bucket is never early.
    assert 1 <= buckets <= 3


def test_buckets_begin_with_the_last_layer() -> None:
    assert buckets_of("after") == ((0, 1, 2, 3, 4, 5, 6, 7),)
    assert buckets_of("during") == ((6, 7), (4, 5), (2, 3), (0, 1))


def test_a_wider_network_has_more_units_and_as_many_classes() -> None:
    assert shapes(3)[2:] == ((150, 60, 5, 5), (150,), (2400, 384), (384,), (384, 10), (10,))
