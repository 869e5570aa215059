"""A training that was stopped and resumed is the one that was not, and a file that is damaged or
another's is refused.

It can go on in another environment: NumPy 1 and NumPy 2 draw the same numbers and write the same
arrays. MXNet ends at NumPy 1.23 and JAX begins at NumPy 2, so no environment holds both. The
constants were found the same in both, and this runs in both.
"""

import io
import json
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend
from parallel_core import run_data_parallel
from parallel_core.experiments import training_steps
from parallel_core.measurement.result import Result
from parallel_core.system.errors import RequestError
from parallel_core.training.batches import Exchange, Settings, shuffled
from parallel_core.training.checkpoints import (
    FILE,
    Checkpoint,
    CheckpointError,
    Checkpointing,
    Generator,
    check_resumable,
    from_bytes,
    open_directory,
    to_bytes,
)
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters, shapes

DATA = synthetic("a test needs no more", train=100, test=5)
SETTINGS = Settings(epochs=2, batch_size=32)
"""Four steps an epoch, the last of them with fewer images."""
NUMPY = backends.load("numpy", 2, threads_per_device=1)
Trained = tuple[Result, list[bytes]]


def as_read(content: bytes) -> Checkpoint:
    return from_bytes(content, "file")


def train(
    backend: Backend,
    settings: Settings = SETTINGS,
    *,
    every: int | None = None,
    after: bytes | None = None,
    **options: Any,
) -> Trained:
    """Train to the end, from the beginning or after a checkpoint; return the result and all
    checkpoints.
    """
    kept: list[bytes] = []
    checkpoints = Checkpointing(
        lambda one: kept.append(to_bytes(one)), every, as_read(after) if after else None
    )
    with pytest.MonkeyPatch.context() as patched:
        # What a step takes as units is another test's.
        patched.setattr(training_steps, "BARE_ROUNDS", 1)
        return run_data_parallel(
            backend, data=DATA, settings=settings, checkpoints=checkpoints, **options
        ), kept


@cache
def left_by_numpy() -> tuple[bytes, ...]:
    """Return the checkpoints of every second step: after the first two, the first epoch, two more,
    and all.
    """
    return tuple(train(NUMPY, every=2)[1])


def whole() -> bytes:
    return left_by_numpy()[0]


UNDISTURBED: dict[str, Trained] = {}
"""Trainings with a checkpoint every second step, by backend: one is enough for all tests."""


@pytest.fixture
def undisturbed(backend: Backend) -> Trained:
    if backend.name not in UNDISTURBED:
        UNDISTURBED[backend.name] = train(backend, every=2)
    return UNDISTURBED[backend.name]


def test_a_checkpoint_is_kept_after_each_epoch_and_after_so_many_steps_once(
    undisturbed: Trained,
) -> None:
    states = [as_read(file).state for file in undisturbed[1]]
    assert [(state.epoch, state.step) for state in states] == [(1, 2), (2, 0), (2, 2), (3, 0)]
    assert len(train(NUMPY, replace(SETTINGS, epochs=1), every=4)[1]) == 1


# How gradients are exchanged changes no number, so it may change when a training is resumed.
@pytest.mark.parametrize(("place", "exchange"), [(1, "after"), (3, "during")])
def test_a_resumed_training_equals_an_undisturbed_one(
    backend: Backend, undisturbed: Trained, place: int, exchange: Exchange
) -> None:
    expected, files = undisturbed
    result, again = train(backend, replace(SETTINGS, exchange=exchange), after=files[place - 1])
    # NumPy's sums depend on where its arrays happen to lie, so two of its trainings differ in the
    # last digit.
    rounding = 1e-6 if backend.name == "numpy" else 0
    np.testing.assert_allclose(result.series["loss"], expected.series["loss"], rtol=rounding)
    assert result.series["test_accuracy"] == expected.series["test_accuracy"]
    for mine, other in zip(
        as_read(again[-1]).parameters, as_read(files[-1]).parameters, strict=True
    ):
        np.testing.assert_allclose(mine, other, rtol=rounding, atol=rounding)


def test_any_framework_goes_on_with_what_another_one_left(
    backend: Backend, undisturbed: Trained
) -> None:
    expected, files = undisturbed
    assert as_read(files[2]).state.written.backend == backend.name
    for there, left in ((backend, left_by_numpy()[2]), (NUMPY, files[2])):
        np.testing.assert_allclose(
            train(there, after=left)[0].series["loss"], expected.series["loss"], rtol=1e-4
        )


def test_a_training_that_is_complete_is_reported_and_not_continued(
    backend: Backend, undisturbed: Trained
) -> None:
    images: list[int] = []
    result, files = train(
        backend, after=undisturbed[1][-1], on_batch=lambda _, count: images.append(count)
    )
    assert (files, sum(images), len(result.series["loss"]), len(result.cases[0].seconds)) == (
        [],
        0,
        8,
        2,
    )


def test_more_epochs_may_be_asked_for_and_speed_is_of_those_trained_here() -> None:
    longer = replace(SETTINGS, epochs=4)
    result, _ = train(NUMPY, longer, after=left_by_numpy()[2])
    undisturbed = run_data_parallel(NUMPY, data=DATA, settings=longer)
    np.testing.assert_allclose(result.series["loss"], undisturbed.series["loss"], rtol=1e-6)
    assert len(result.cases[0].seconds) == 2
    assert "checkpoint after 6 steps, written by numpy" in result.notes[0]


@pytest.mark.parametrize(("place", "is_noted"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_speed_that_was_not_measured_here_is_noted(place: int, is_noted: bool) -> None:
    result, _ = train(NUMPY, after=left_by_numpy()[place])
    assert any("from beginning to end" in note for note in result.notes) == is_noted


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
        train(NUMPY, replace(SETTINGS, **changed), after=left_by_numpy()[2])


def test_other_images_and_another_order_are_refused() -> None:
    checkpoint = as_read(whole())
    with pytest.raises(RequestError, match="trained on other images"):
        check_resumable(checkpoint, SETTINGS, synthetic("others", train=151, test=1))
    state = msgspec.structs.replace(checkpoint.state, generator=Generator("{}", 0))
    with pytest.raises(RequestError, match="draws another order of images than NumPy"):
        check_resumable(replace(checkpoint, state=state), SETTINGS, DATA)


def test_a_checkpoint_read_and_written_again_says_the_same() -> None:
    for file in train(NUMPY, Settings(epochs=1, batch_size=64, limit=2, seed=3, width=2), every=1)[
        1
    ]:
        assert to_bytes(as_read(file)) == file


def test_the_documented_format_is_what_is_written() -> None:
    with np.load(io.BytesIO(whole()), allow_pickle=False) as found:
        names = [
            "training",
            *(f"{layer}.{kind}" for layer in range(1, 5) for kind in ("weight", "bias")),
        ]
        assert list(found) == names
        assert tuple(found[name].shape for name in names[1:]) == shapes()
        assert {found[name].dtype for name in names[1:]} == {np.dtype(np.float32)}
        state = json.loads(bytes(found["training"]))
    assert (state["format"], state["schema"], state["epoch"], state["step"]) == (
        "parallel-core checkpoint",
        1,
        1,
        2,
    )
    assert len(state["position"]["begun"]["losses"]) == 2
    assert json.loads(state["generator"]["state"])["bit_generator"] == "PCG64"


@given(st.data())
def test_flipped_bytes_never_give_other_parameters(data: st.DataObject) -> None:
    content = bytearray(whole())
    # The archive's own words, at the end and before each array, are few; half of the flips go
    # there.
    anywhere = st.integers(0, len(content) - 1)
    directory = st.integers(content.index(b"PK\x01\x02"), len(content) - 1)
    headers = st.integers(0, 4000)
    for place in data.draw(
        st.lists(st.one_of(directory, headers, anywhere), min_size=1, max_size=3)
    ):
        content[place] ^= data.draw(st.integers(1, 255))
    try:
        found = as_read(bytes(content))
    except CheckpointError:
        return
    assert found.state == as_read(whole()).state
    for mine, other in zip(found.parameters, as_read(whole()).parameters, strict=True):
        np.testing.assert_array_equal(mine, other)


@given(
    st.one_of(st.tuples(st.booleans(), st.floats(0, 1, exclude_max=True)), st.binary(max_size=200))
)
def test_a_part_of_a_file_and_bytes_of_others_are_refused(part: bytes | tuple[bool, float]) -> None:
    if isinstance(part, tuple):
        cut = int(part[1] * len(whole()))
        part = whole()[-cut:] if part[0] and cut else whole()[:cut]
    with pytest.raises(CheckpointError, match=r"is no whole checkpoint .*remove it"):
        as_read(part)


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("1.bias", np.zeros(21, np.float32), "1.bias is float32 .21,., not float32 .20,."),
        ("4.bias", np.zeros(10), "4.bias is float64"),
        ("4.bias", np.full(10, np.nan, np.float32), "numbers in 4.bias are not finite"),
        ("2.bias", None, "no item named '2.bias.npy'"),
        ("4.bias", np.array([object()]), "Object arrays cannot be loaded"),
        ("training", {"schema": 2}, "of schema 2; read here: 'parallel-core checkpoint' of 1"),
        ("training", {"format": "x"}, "it is 'x' of schema 1"),
        ("training", np.frombuffer(b"[]", np.uint8), "list indices"),
        ("training", np.frombuffer(b"\xff{", np.uint8), ""),
        ("training", {"step": 4}, "contradict each other at epoch 1, step 4"),
        ("training", {"data": "x"}, "Expected `int`"),
    ],
)
def test_archives_of_others_are_refused(
    name: str, changed: np.ndarray | dict[str, Any] | None, told: str
) -> None:
    """Another array stands in the place of one, or none, or the training's state says something
    else.
    """
    with np.load(io.BytesIO(whole())) as found:
        arrays = {one: found[one] for one in found if one != name}
        if isinstance(changed, dict):
            text = json.dumps({**json.loads(bytes(found[name])), **changed})
            changed = np.frombuffer(text.encode(), np.uint8)
    if changed is not None:
        arrays[name] = changed
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    with pytest.raises(CheckpointError, match=rf"file is no whole checkpoint \(.*{told}"):
        as_read(stream.getvalue())


@pytest.mark.parametrize("place", ["file", "file/below", "file-as-checkpoint"])
def test_what_is_no_directory_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file-as-checkpoint" / FILE).mkdir(parents=True)
    with pytest.raises(RequestError, match="cannot"):
        open_directory(tmp_path / place, resume=True)


def test_what_is_drawn_and_written_is_that_of_every_numpy() -> None:
    orders = [shuffled(*of)[0] for of in ((0, 1, 100), (0, 2, 100), (7, 3, 60000))]
    assert [crc32(order.astype("<i8").tobytes()) for order in orders] == [
        3236461665,
        3230131399,
        54375313,
    ]
    assert crc32(b"".join(array.tobytes() for array in initial_parameters())) == 3237401966
    assert DATA.checksum == 2946659676
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (20,), }"
    with zipfile.ZipFile(io.BytesIO(whole())) as archive:
        content = archive.read("1.bias.npy")
    assert content[:128] == header.ljust(127) + b"\n"
    assert len(content) == 128 + 20 * 4
