"""A training that was stopped and resumed is the one that was not, on whatever framework it goes on."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from backends import Backend
from parallel_core import run_data_parallel
from parallel_core.measurement.result import Result
from parallel_core.system.errors import RequestError
from parallel_core.training.batches import Exchange, Settings
from parallel_core.training.checkpoints import Generator, check_resumable, to_bytes
from parallel_core.training.dataset import synthetic
from tests.parallel_core.training.checkpoints.small_training import (
    DATA,
    SETTINGS,
    as_read,
    left_by_numpy,
    numpy,
    train,
)

Undisturbed = tuple[Result, list[bytes]]


@pytest.fixture(scope="module")
def trainings() -> dict[str, Undisturbed]:
    """Undisturbed trainings with a checkpoint every second step, by backend: one is enough for all tests."""
    return {}


@pytest.fixture
def undisturbed(backend: Backend, trainings: dict[str, Undisturbed]) -> Undisturbed:
    if backend.name not in trainings:
        trainings[backend.name] = train(backend, every=2)
    return trainings[backend.name]


def places(files: list[bytes]) -> list[tuple[int, int]]:
    return [(state.epoch, state.step) for state in (as_read(file).state for file in files)]


def test_a_checkpoint_is_kept_after_each_epoch_and_after_so_many_steps_once(undisturbed: Undisturbed) -> None:
    assert places(undisturbed[1]) == [(1, 2), (2, 0), (2, 2), (3, 0)]
    assert len(train(numpy(), replace(SETTINGS, epochs=1), every=4)[1]) == 1


# How gradients are exchanged changes no number, so it may change when a training is resumed.
@pytest.mark.parametrize(("place", "exchange"), [(1, "after"), (3, "during")])
def test_a_resumed_training_equals_an_undisturbed_one(
    backend: Backend, undisturbed: Undisturbed, place: int, exchange: Exchange
) -> None:
    expected, files = undisturbed
    result, again = train(backend, replace(SETTINGS, exchange=exchange), after=files[place - 1])
    # NumPy's sums depend on where its arrays happen to lie, so two of its trainings differ in the last digit.
    rounding = 1e-6 if backend.name == "numpy" else 0
    np.testing.assert_allclose(result.series["loss"], expected.series["loss"], rtol=rounding)
    assert result.series["test_accuracy"] == expected.series["test_accuracy"]
    for mine, other in zip(as_read(again[-1]).parameters, as_read(files[-1]).parameters, strict=True):
        np.testing.assert_allclose(mine, other, rtol=rounding, atol=rounding)


def test_any_framework_goes_on_with_what_another_one_left(backend: Backend, undisturbed: Undisturbed) -> None:
    expected, files = undisturbed
    assert as_read(files[2]).state.written.backend == backend.name
    for there, left in ((backend, left_by_numpy(every=2)[2]), (numpy(), files[2])):
        np.testing.assert_allclose(train(there, after=left)[0].series["loss"], expected.series["loss"], rtol=1e-4)


def test_a_training_that_is_complete_is_reported_and_not_continued(backend: Backend, undisturbed: Undisturbed) -> None:
    images: list[int] = []
    result, files = train(backend, after=undisturbed[1][-1], on_batch=lambda _, count: images.append(count))
    assert (files, sum(images), len(result.series["loss"]), len(result.cases[0].seconds)) == ([], 0, 8, 2)


def test_more_epochs_may_be_asked_for_and_speed_is_of_those_trained_here() -> None:
    longer = replace(SETTINGS, epochs=4)
    result, _ = train(numpy(), longer, after=left_by_numpy(every=3)[-2])
    undisturbed = run_data_parallel(numpy(), data=DATA, settings=longer)
    np.testing.assert_allclose(result.series["loss"], undisturbed.series["loss"], rtol=1e-6)
    assert len(result.cases[0].seconds) == 2
    assert "checkpoint after 7 steps, written by numpy" in result.notes[0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"batch_size": 64}, "with --batch-size 32, and not 64"),
        ({"learning_rate": 0.1}, "with --lr 0.2, and not 0.1"),
        ({"limit": 3}, "with --limit left out, and not 3"),
        ({"seed": 1}, "with --seed 0, and not 1"),
        ({"width": 2}, "with --width 1, and not 2"),
        ({"epochs": 1}, "is in epoch 2: --epochs 1 lies behind it"),
    ],
)
def test_what_would_give_other_numbers_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        train(numpy(), replace(SETTINGS, **changed), after=left_by_numpy(every=3)[-2])


def test_other_images_and_another_order_are_refused() -> None:
    checkpoint = as_read(left_by_numpy()[0])
    with pytest.raises(RequestError, match="trained on other images"):
        check_resumable(checkpoint, SETTINGS, synthetic("others", train=151, test=1))
    state = msgspec.structs.replace(checkpoint.state, generator=Generator("{}", 0))
    with pytest.raises(RequestError, match="draws another order of images than NumPy"):
        check_resumable(replace(checkpoint, state=state), SETTINGS, DATA)


def test_a_checkpoint_read_and_written_again_says_the_same() -> None:
    for file in train(numpy(), Settings(epochs=1, batch_size=64, limit=2, seed=3, width=2), every=1)[1]:
        assert to_bytes(as_read(file)) == file


# After the first two steps, the first epoch, two steps more, and all.
@pytest.mark.parametrize(("place", "is_noted"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_speed_that_was_not_measured_here_is_noted(place: int, is_noted: bool) -> None:
    result, _ = train(numpy(), after=left_by_numpy(every=2)[place])
    assert any("from beginning to end" in note for note in result.notes) == is_noted
