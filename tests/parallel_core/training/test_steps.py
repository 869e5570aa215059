"""The same numbers on every framework and number of devices, and training that stops at numbers
that are not finite.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal, TypeVar

import numpy as np
import pytest

import backends
from backends import Array, Backend, Ops
from backends.process_groups import Group, GroupedBackend
from parallel_core.training import step as training_step
from parallel_core.training.batches import Epoch, Settings, as_input, batches
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


def loaded(backend: Backend, start: Sequence[np.ndarray] | None = None) -> list[Array]:
    """Load parameters on every device: the initial ones, unless others are given."""
    start = initial_parameters() if start is None else start
    return [backend.asarray(start, device) for device in backend.devices]


def learning() -> tuple[np.ndarray, ...]:
    """From the book's weights the loss leaves its plateau late; larger ones learn a few images at
    once.
    """
    return tuple(8 * p for p in initial_parameters())


def first_epoch(backend: Backend, data: Dataset, settings: Settings) -> Epoch:
    return next(train(backend, loaded(backend, initial_parameters(settings.seed)), data, settings))


def first_step(
    backend: Backend, images: np.ndarray, labels: np.ndarray
) -> tuple[list[Array], list[Array]]:
    params = loaded(backend)
    updated, _, losses = train_batch(backend, params, images, labels, 0.2, guards(backend, params))
    return updated, losses


@cache
def numpy_losses(batch_size: int, steps: int) -> tuple[float, ...]:
    return first_epoch(REFERENCE, real_data(), Settings(1, batch_size, limit=steps)).losses


def assert_alike(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float = 0, atol: float = 0
) -> None:
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("batch_size", "devices", "steps"), [(128, 2, 2), (64, 3, 4), (25, 1, 8)])
def test_the_first_losses_equal_numpy_s(
    load: Callable[[int], Backend], batch_size: int, devices: int, steps: int
) -> None:
    expected = numpy_losses(batch_size, steps)
    losses = first_epoch(load(devices), real_data(), Settings(1, batch_size, limit=steps)).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    # Near the plateau at ln 10 they must differ from batch to batch, or constants are compared.
    assert losses[0] == pytest.approx(math.log(10), rel=1e-2)
    assert len(set(losses)) == steps


@pytest.mark.parametrize("rows", [1, 5])
def test_a_step_on_fewer_or_uneven_rows_equals_numpy_s(backend: Backend, rows: int) -> None:
    images = SYNTHETIC.train_images[:rows, None].astype(np.float32) / 255
    labels = SYNTHETIC.train_labels[:rows]
    (expected, *_), _ = first_step(REFERENCE, images, labels)
    updated, losses = first_step(backend, images, labels)
    for replica in map(backend.to_numpy, updated):
        assert_alike(replica, expected, rtol=1e-4, atol=1e-7)
    assert [float(loss) > 0 for loss in backend.to_numpy(tuple(losses))] == [
        i < rows for i in range(3)
    ]


def test_training_learns_and_is_evaluated_as_numpy_would(backend: Backend) -> None:
    start = learning()
    params = loaded(backend, start)
    data = synthetic("a test needs no more", train=160, test=60)
    *_, last = train(backend, params, data, Settings(4, 16, 0.1))
    assert last.accuracy > 0.9
    assert last.losses[-1] < 0.5
    for trained in (start, backend.to_numpy(params[0])):
        here = evaluate(backend, loaded(backend, trained), data)
        assert here == evaluate(REFERENCE, loaded(REFERENCE, trained), data)


def test_a_loss_that_is_not_finite_names_step_and_device_and_changes_nothing(
    backend: Backend,
) -> None:
    params = loaded(backend)
    broken = backend.to_numpy(params[1])
    broken[-1][0] = math.nan
    params[1] = backend.asarray(broken, backend.devices[1])
    before = [backend.to_numpy(p) for p in params]
    message = (
        r"the loss is nan on cpu:2 in epoch 1, step 1 \(the parameters are those before the "
        r"step\): .*--lr"
    )
    with pytest.raises(NotFiniteError, match=message):
        next(train(backend, params, SYNTHETIC, Settings(1, 60)))
    for replica, expected in zip(map(backend.to_numpy, params), before, strict=True):
        assert_alike(replica, expected)


def spoilt(backend: Backend, at: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make gradients of the last device's share NaN, and its loss not, in some steps, which are
    numbered from 0.
    """
    whole, calls = training_step.loss_and_gradients(backend.ops), iter(range(10**6))

    def spoil_last(parameters: Array, images: Array, labels: Array) -> Array:
        loss, gradients = whole(parameters, images, labels)
        # Rows of the last device's share of 29 images over three; the others have 10.
        factor = math.nan if labels.shape[0] == 9 else 1.0
        return loss, (*gradients[:-1], backend.ops.multiply(gradients[-1], factor))

    def launched(_: Ops) -> Callable[..., Array]:
        # One function for the devices of a step, which are launched in order.
        return whole if next(calls) not in range(at, at + times) else spoil_last

    monkeypatch.setattr(training_step, "loss_and_gradients", launched)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            10,
            (
                r"the gradients on cpu:3 are not finite in epoch 1, step 3 \(the parameters are "
                r"those "
                r"before"
            ),
        ),
        # The fault does not come back when the step is computed again.
        (1, r"the gradients summed over all devices are not finite in epoch 1, step 3 \("),
    ],
)
def test_gradients_that_are_not_finite_change_no_parameter_on_any_device(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, times: int, message: str
) -> None:
    settings = Settings(1, 29, limit=4)
    expected = loaded(backend)
    next(train(backend, expected, SYNTHETIC, replace(settings, limit=2)))
    params = loaded(backend)
    spoilt(backend, 2, times, monkeypatch)
    with pytest.raises(NotFiniteError, match=message) as caught:
        next(train(backend, params, SYNTHETIC, settings))
    assert caught.value.devices == (backend.devices[2:] if times > 1 else ())
    # The next step was queued before the fault was noticed: it must not have changed anything
    # either.
    for replica in map(backend.to_numpy, params):
        assert_alike(replica, backend.to_numpy(expected[0]), rtol=1e-6, atol=1e-8)
    # Training can go on from these parameters.
    monkeypatch.undo()
    assert all(map(math.isfinite, next(train(backend, params, SYNTHETIC, settings)).losses))


COUNTS = (2, 1)


def in_group(program: Callable[[Backend], Returned]) -> list[Returned]:
    """Run a program in each of two processes, with two devices and one; return what they
    returned.
    """

    def of_rank(group: Group) -> Returned:
        local = backends.load("numpy", COUNTS[group.rank], threads_per_device=1)
        return program(GroupedBackend(local, group, COUNTS, lambda _: None))

    return together(len(COUNTS), of_rank)


def test_losses_and_accuracy_are_of_all_processes_rows() -> None:
    def trained(backend: Backend) -> list[Epoch]:
        return list(train(backend, loaded(backend, learning()), FEW, Settings(2, 32)))

    expected = trained(REFERENCE)
    assert expected[-1].losses[-1] < expected[0].losses[0]
    for epochs in in_group(trained):
        for mine, other in zip(epochs, expected, strict=True):
            np.testing.assert_allclose(mine.losses, other.losses, rtol=1e-4)
            assert mine.accuracy == other.accuracy


def test_every_rank_finds_a_device_that_differs() -> None:
    def difference(changed: tuple[int, int] | None, backend: Backend) -> float:
        """Return what a rank finds where the device `changed`, a rank and a place in it, holds
        other parameters.
        """
        ranked = [(len(backend.devices) == 1, place) for place in range(len(backend.devices))]
        values = [(np.full(3, 2 if one == changed else 1, np.float32),) for one in ranked]
        return largest_replica_difference(
            backend, list(map(backend.asarray, values, backend.devices))
        )

    assert in_group(partial(difference, None)) == [0, 0]
    assert all(
        found > 0
        for changed in ((0, 0), (0, 1), (1, 0))
        for found in in_group(partial(difference, changed))
    )


def test_a_gradient_whose_square_overflows_changes_nothing(backend: Backend) -> None:
    values = (
        (np.ones(4, np.float32),),
        (np.array([1, 1, 1e30, 1], np.float32),),
        0.25,
        np.ones(1, np.float32),
    )
    arguments = (
        x if isinstance(x, float) else backend.asarray(x, backend.devices[1]) for x in values
    )
    (kept,), guard = backend.to_numpy(backend.launch(backend.ops.sgd_while_finite, *arguments))
    assert (kept.tolist(), np.isnan(guard).all()) == ([1, 1, 1, 1], True)


def test_progress_is_reported_batch_by_batch() -> None:
    reported: list[tuple[int, int]] = []
    list(
        train(
            REFERENCE,
            loaded(REFERENCE),
            FEW,
            Settings(2, 32, limit=3),
            lambda *done: reported.append(done),
        )
    )
    assert reported == [(1, 32), (1, 32), (1, 11), (2, 32), (2, 32), (2, 11)]


def test_batches_cover_the_data_in_an_order_of_seed_and_epoch() -> None:
    def labels(settings: Settings, epoch: int) -> list[int]:
        return [int(label) for _, batch in batches(SYNTHETIC, settings, epoch) for label in batch]

    every = labels(Settings(batch_size=256), 1)
    assert sorted(every) == sorted(SYNTHETIC.train_labels.tolist())
    assert labels(Settings(batch_size=256), 1) == every
    assert labels(Settings(batch_size=256), 2) != every
    assert labels(Settings(batch_size=256, seed=1), 1) != every
    assert labels(Settings(batch_size=100, limit=2), 1) == every[:200]


def test_exchanging_in_buckets_changes_no_number_and_replicas_have_memory_of_their_own(
    backend: Backend,
) -> None:
    trained = []
    for exchange in ("after", "during"):
        params = loaded(backend)
        losses = next(
            train(backend, params, FEW, Settings(1, 20, limit=3, exchange=exchange))
        ).losses
        first, *others = (backend.to_numpy(p) for p in params)
        for replica in others:
            assert_alike(replica, first)
        trained.append((losses, first))
        ones = backend.asarray(tuple(np.ones_like(p) for p in first), backend.devices[0])
        changed = backend.to_numpy(backend.launch(backend.ops.sgd, params[0], ones, 1.0))
        assert all((new != old).all() for new, old in zip(changed, first, strict=True))
        assert_alike(backend.to_numpy(params[1]), first)
    (losses, replica), (other_losses, other_replica) = trained
    assert losses == other_losses
    assert_alike(other_replica, replica)


RESULTS_TOGETHER = ("jax",)
"""Backends whose launches give all gradients at once, at their end."""


def test_buckets_are_reduced_before_backward_has_ended_where_work_is_queued(
    backend: Backend,
) -> None:
    params = loaded(backend)
    # Without a queue nothing can be overtaken, and a short pass is enough.
    rows = slice(None if backend.engine == "async" else 60)
    images, labels = as_input(SYNTHETIC.train_images[rows]), SYNTHETIC.train_labels[rows]

    def early(exchange: Literal["after", "during"]) -> int:
        return count_reduced_early(backend, params, images, labels, buckets_of(exchange))

    assert early("after") == 0
    if backend.engine == "sync" or backend.name in RESULTS_TOGETHER:
        assert early("during") == 0
    else:
        # Where other programs keep the cores busy, a step may show nothing of it. The first layer's
        # gradient is the last one, so its bucket is never early.
        assert 1 <= next(filter(None, (early("during") for _ in range(30))), 0) <= 3


def test_a_wider_network_has_more_but_classes_and_buckets_begin_with_its_last_layer() -> None:
    assert buckets_of("after") == ((0, 1, 2, 3, 4, 5, 6, 7),)
    assert buckets_of("during") == ((6, 7), (4, 5), (2, 3), (0, 1))
    assert shapes(1) == (
        (20, 1, 3, 3),
        (20,),
        (50, 20, 5, 5),
        (50,),
        (800, 128),
        (128,),
        (128, 10),
        (10,),
    )
    assert shapes(3)[2:] == ((150, 60, 5, 5), (150,), (2400, 384), (384,), (384, 10), (10,))
