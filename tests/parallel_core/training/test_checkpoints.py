"""A training that was stopped and resumed is the one that was not, and a file that is damaged or
another's is refused.

It can go on in another environment: NumPy 1 and NumPy 2 draw the same numbers and write the same
arrays. MXNet ends at NumPy 1.23 and JAX begins at NumPy 2, so no environment holds both. The
constants were found the same in both, and this runs in both.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
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
from parallel_core.experiments.training_on_multiple_gpus import data_parallel
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
from tests.parallel_core.training.test_steps import assert_alike

DATA = synthetic("a test needs no more", train=100, test=5)
SETTINGS = Settings(epochs=2, batch_size=32)
"""Four steps an epoch, the last of them with fewer images."""
NUMPY = backends.load("numpy", 2, threads_per_device=1)


class Trained(NamedTuple):
    """What a training left: its result, and the files of its checkpoints in their order."""

    result: Result
    files: list[bytes]


def as_read(content: bytes) -> Checkpoint:
    """Return the checkpoint that a file holds."""
    return from_bytes(content, "file")


def train(
    backend: Backend,
    settings: Settings = SETTINGS,
    *,
    every: int | None = None,
    after: bytes | None = None,
    **options: Any,
) -> Trained:
    """Train to the end, from the beginning or after a checkpoint."""
    files: list[bytes] = []
    resumed = as_read(after) if after else None
    checkpoints = Checkpointing(
        lambda checkpoint: files.append(to_bytes(checkpoint)), every, resumed
    )
    with pytest.MonkeyPatch.context() as patched:
        # What a step takes as units is another test's.
        patched.setattr(training_steps, "BARE_ROUNDS", 1)
        result = run_data_parallel(
            backend,
            data=DATA,
            settings=settings,
            checkpoints=checkpoints,
            compared=0,
            count=0,
            **options,
        )
    return Trained(result, files)


@cache
def left_by_numpy() -> tuple[bytes, ...]:
    """Return the checkpoints of every second step: after the first two, the first epoch, two more,
    and all.
    """
    return tuple(train(NUMPY, every=2).files)


def whole_file() -> bytes:
    """Return the file of a checkpoint after the first two steps."""
    return left_by_numpy()[0]


UNDISTURBED: dict[str, Trained] = {}
"""Trainings with a checkpoint every second step, by backend: one is enough for all tests."""


@pytest.fixture
def undisturbed(backend: Backend) -> Trained:
    """A training of the backend that was not stopped."""
    if backend.name not in UNDISTURBED:
        UNDISTURBED[backend.name] = train(backend, every=2)
    return UNDISTURBED[backend.name]


def test_a_checkpoint_is_kept_after_each_epoch_and_every_second_step(undisturbed: Trained) -> None:
    states = [as_read(file).state for file in undisturbed.files]
    epochs_and_steps = [(state.epoch, state.step) for state in states]
    assert epochs_and_steps == [(1, 2), (2, 0), (2, 2), (3, 0)]


def test_a_step_that_ends_an_epoch_leaves_a_single_checkpoint() -> None:
    files = train(NUMPY, replace(SETTINGS, epochs=1), every=4).files
    assert len(files) == 1


# How gradients are exchanged changes no number, so it may change when a training is resumed.
@pytest.mark.parametrize(("checkpoint", "exchange"), [(0, "after"), (2, "during")])
def test_a_resumed_training_equals_an_undisturbed_one(
    backend: Backend, undisturbed: Trained, checkpoint: int, exchange: Exchange
) -> None:
    settings = replace(SETTINGS, exchange=exchange)
    resumed = train(backend, settings, after=undisturbed.files[checkpoint])
    # NumPy's sums depend on where its arrays happen to lie, so two of its trainings differ in the
    # last digit.
    rounding = 1e-6 if backend.name == "numpy" else 0
    series, expected_series = resumed.result.series, undisturbed.result.series
    np.testing.assert_allclose(series["loss"], expected_series["loss"], rtol=rounding)
    assert series["test_accuracy"] == expected_series["test_accuracy"]
    last, expected_last = as_read(resumed.files[-1]), as_read(undisturbed.files[-1])
    assert_alike(last.parameters, expected_last.parameters, rounding, rounding)


def test_any_framework_goes_on_with_what_another_one_left(
    backend: Backend, undisturbed: Trained
) -> None:
    left_by_backend = undisturbed.files[2]
    assert as_read(left_by_backend).state.written.backend == backend.name
    expected_losses = undisturbed.result.series["loss"]
    resumed_by_backend = train(backend, after=left_by_numpy()[2]).result
    np.testing.assert_allclose(resumed_by_backend.series["loss"], expected_losses, rtol=1e-4)
    resumed_by_numpy = train(NUMPY, after=left_by_backend).result
    np.testing.assert_allclose(resumed_by_numpy.series["loss"], expected_losses, rtol=1e-4)


def test_a_training_that_is_complete_is_reported_and_not_continued(
    backend: Backend, undisturbed: Trained
) -> None:
    images: list[int] = []
    result, files = train(
        backend, after=undisturbed.files[-1], on_batch=lambda _, number: images.append(number)
    )
    assert files == []
    assert sum(images) == 0
    assert len(result.series["loss"]) == 8
    assert len(result.cases[0].seconds) == 2


def test_more_epochs_may_be_asked_for_and_speed_is_of_those_trained_here() -> None:
    longer = replace(SETTINGS, epochs=4)
    resumed = train(NUMPY, longer, after=left_by_numpy()[2]).result
    undisturbed = run_data_parallel(NUMPY, data=DATA, settings=longer, compared=0, count=0)
    np.testing.assert_allclose(resumed.series["loss"], undisturbed.series["loss"], rtol=1e-6)
    assert len(resumed.cases[0].seconds) == 2
    assert resumed.notes[0].code == "from-checkpoint"
    assert as_read(left_by_numpy()[2]).origin in resumed.notes[0].sentence


@pytest.mark.parametrize(("checkpoint", "is_noted"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_speed_that_was_not_measured_here_is_noted(checkpoint: int, is_noted: bool) -> None:
    result = train(NUMPY, after=left_by_numpy()[checkpoint]).result
    assert (data_parallel.INCLUDED_EPOCHS in result.notes) == is_noted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 64}, "with --batch-size 32, and not 64"),
        ({"learning_rate": 0.1}, "with --lr 0.2, and not 0.1"),
        ({"limit": 3}, "with --limit left out, and not 3"),
        ({"seed": 1}, "with --seed 0, and not 1"),
        ({"width": 2}, "with --width 1, and not 2"),
        ({"epochs": 1}, "is in epoch 2: --epochs 1 lies behind it"),
    ],
)
def test_settings_that_would_give_other_numbers_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        train(NUMPY, replace(SETTINGS, **changes), after=left_by_numpy()[2])


def test_other_images_and_another_order_are_refused() -> None:
    checkpoint = as_read(whole_file())
    other_images = synthetic("others", train=151, test=1)
    with pytest.raises(RequestError, match="trained on other images"):
        check_resumable(checkpoint, SETTINGS, other_images)
    state = msgspec.structs.replace(checkpoint.state, generator=Generator("{}", 0))
    with pytest.raises(RequestError, match="draws another order of images than NumPy"):
        check_resumable(replace(checkpoint, state=state), SETTINGS, DATA)


def test_a_checkpoint_read_and_written_again_says_the_same() -> None:
    settings = Settings(epochs=1, batch_size=8, limit=2, seed=3, width=2)
    for file in train(NUMPY, settings, every=1).files:
        assert to_bytes(as_read(file)) == file


def test_the_documented_format_is_what_is_written() -> None:
    with np.load(io.BytesIO(whole_file()), allow_pickle=False) as archive:
        arrays = dict(archive)
    state = json.loads(bytes(arrays.pop("training")))
    names = [f"{layer}.{kind}" for layer in range(1, 5) for kind in ("weight", "bias")]
    assert list(arrays) == names
    assert tuple(array.shape for array in arrays.values()) == shapes()
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    expected = {"format": "parallel-core checkpoint", "schema": 1, "epoch": 1, "step": 2}
    assert expected.items() <= state.items()
    assert len(state["position"]["begun"]["losses"]) == 2
    assert json.loads(state["generator"]["state"])["bit_generator"] == "PCG64"


@given(st.data())
def test_flipped_bytes_never_give_other_parameters(data: st.DataObject) -> None:
    content = bytearray(whole_file())
    # The archive's own words, at the end and before each array, are few; half of the flips go
    # there.
    anywhere = st.integers(0, len(content) - 1)
    directory = st.integers(content.index(b"PK\x01\x02"), len(content) - 1)
    headers = st.integers(0, 4000)
    places = st.lists(st.one_of(directory, headers, anywhere), min_size=1, max_size=3)
    for place in data.draw(places):
        content[place] ^= data.draw(st.integers(1, 255))
    try:
        checkpoint = as_read(bytes(content))
    except CheckpointError:
        return
    expected = as_read(whole_file())
    assert checkpoint.state == expected.state
    assert_alike(checkpoint.parameters, expected.parameters)


NOT_WHOLE = r"is no whole checkpoint .*remove it"


@given(share=st.floats(0, 1, exclude_max=True), is_beginning=st.booleans())
def test_a_part_of_a_file_is_refused(share: float, is_beginning: bool) -> None:
    file = whole_file()
    length = int(share * len(file))
    part = file[:length] if is_beginning else file[len(file) - length :]
    with pytest.raises(CheckpointError, match=NOT_WHOLE):
        as_read(part)


@given(content=st.binary(max_size=200))
def test_bytes_of_others_are_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError, match=NOT_WHOLE):
        as_read(content)


def as_archive(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the file of an archive of arrays."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def arrays_of_whole_file() -> dict[str, np.ndarray]:
    """Return the arrays of a checkpoint, by their names in the archive."""
    with np.load(io.BytesIO(whole_file())) as archive:
        return dict(archive)


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("4.bias", np.array([object()]), "Object arrays cannot be loaded"),
        ("training", np.frombuffer(b"[]", np.uint8), "list indices"),
        ("training", np.frombuffer(b"\xff{", np.uint8), ""),
    ],
)
def test_an_archive_with_another_array_in_the_place_of_one_is_refused(
    name: str, array: np.ndarray, reason: str
) -> None:
    file = as_archive({**arrays_of_whole_file(), name: array})
    with pytest.raises(CheckpointError, match=rf"file is no whole checkpoint \(.*{reason}"):
        as_read(file)


def test_an_archive_without_an_array_is_refused() -> None:
    arrays = arrays_of_whole_file()
    del arrays["2.bias"]
    with pytest.raises(
        CheckpointError, match=r"no whole checkpoint \(.*no item named '2.bias.npy'"
    ):
        as_read(as_archive(arrays))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 2}, "of schema 2; read here: 'parallel-core checkpoint' of 1"),
        ({"format": "x"}, "it is 'x' of schema 1"),
        ({"data": "x"}, "Expected `int`"),
    ],
)
def test_an_archive_with_another_state_of_the_training_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    arrays = arrays_of_whole_file()
    state = {**json.loads(bytes(arrays["training"])), **changes}
    arrays["training"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    with pytest.raises(CheckpointError, match=rf"file is no whole checkpoint \(.*{reason}"):
        as_read(as_archive(arrays))


@pytest.mark.parametrize("place", ["file", "file/below", "file-as-checkpoint"])
def test_what_is_no_directory_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file-as-checkpoint" / FILE).mkdir(parents=True)
    with pytest.raises(RequestError, match="cannot"):
        open_directory(tmp_path / place, resume=True)


def checksum_of_order(seed: int, epoch: int, images: int) -> int:
    """Return the checksum of the order in which an epoch takes the images."""
    order = shuffled(seed, epoch, images)[0]
    return crc32(order.astype("<i8").tobytes())


def test_what_is_drawn_is_that_of_every_numpy() -> None:
    assert checksum_of_order(0, 1, 100) == 3236461665
    assert checksum_of_order(0, 2, 100) == 3230131399
    assert checksum_of_order(7, 3, 60000) == 54375313
    parameters = b"".join(array.tobytes() for array in initial_parameters())
    assert crc32(parameters) == 3237401966
    assert DATA.checksum == 2946659676


def test_what_is_written_is_that_of_every_numpy() -> None:
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (20,), }"
    with zipfile.ZipFile(io.BytesIO(whole_file())) as archive:
        content = archive.read("1.bias.npy")
    assert content[:128] == header.ljust(127) + b"\n"
    assert len(content) == 128 + 20 * 4
