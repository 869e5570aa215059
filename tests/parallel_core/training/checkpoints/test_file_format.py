"""Checkpoints on a disk that is full, damaged or somebody else's: one line, and never other parameters.

A training can go on in another environment: NumPy 1 and NumPy 2 draw the same numbers and write the same arrays. MXNet
ends at NumPy 1.23 and JAX begins at NumPy 2, so no environment holds both. The constants were found the same in both,
and this runs in both.
"""

import io
import json
import zipfile
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.system.errors import RequestError
from parallel_core.training.batches import shuffled
from parallel_core.training.checkpoints import FILE, CheckpointError, open_directory
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters, shapes
from tests.parallel_core.training.checkpoints.small_training import as_read, left_by_numpy


def whole() -> bytes:
    return left_by_numpy(every=3)[0]


def test_the_documented_format_is_what_is_written() -> None:
    with np.load(io.BytesIO(whole()), allow_pickle=False) as found:
        names = ["training", *(f"{layer}.{kind}" for layer in range(1, 5) for kind in ("weight", "bias"))]
        assert list(found) == names
        assert tuple(found[name].shape for name in names[1:]) == shapes()
        assert {found[name].dtype for name in names[1:]} == {np.dtype(np.float32)}
        state = json.loads(bytes(found["training"]))
    assert (state["format"], state["schema"], state["epoch"], state["step"]) == ("parallel-core checkpoint", 1, 1, 3)
    assert len(state["position"]["begun"]["losses"]) == 3
    assert json.loads(state["generator"]["state"])["bit_generator"] == "PCG64"


@given(st.data())
def test_flipped_bytes_never_give_other_parameters(data: st.DataObject) -> None:
    content = bytearray(whole())
    # The archive's own words, at the end and before each array, are few; half of the flips go there.
    anywhere = st.integers(0, len(content) - 1)
    directory = st.integers(content.index(b"PK\x01\x02"), len(content) - 1)
    headers = st.integers(0, 4000)
    for place in data.draw(st.lists(st.one_of(directory, headers, anywhere), min_size=1, max_size=3)):
        content[place] ^= data.draw(st.integers(1, 255))
    try:
        found = as_read(bytes(content))
    except CheckpointError:
        return
    assert found.state == as_read(whole()).state
    for mine, other in zip(found.parameters, as_read(whole()).parameters, strict=True):
        np.testing.assert_array_equal(mine, other)


@given(st.one_of(st.tuples(st.booleans(), st.floats(0, 1, exclude_max=True)), st.binary(max_size=200)))
def test_a_part_of_a_file_and_bytes_of_others_are_refused(part: bytes | tuple[bool, float]) -> None:
    if isinstance(part, tuple):
        cut = int(part[1] * len(whole()))
        part = whole()[-cut:] if part[0] and cut else whole()[:cut]
    with pytest.raises(CheckpointError, match=r"is no whole checkpoint .*remove it"):
        as_read(part)


def archive(**changed: np.ndarray | None) -> bytes:
    """Write a checkpoint with other arrays in the place of some; without those that are None."""
    with np.load(io.BytesIO(whole())) as found:
        arrays = {name: changed.get(name, found[name]) for name in found if changed.get(name, 0) is not None}
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def state(**changed: object) -> np.ndarray:
    with np.load(io.BytesIO(whole())) as found:
        text = json.dumps({**json.loads(bytes(found["training"])), **changed})
    return np.frombuffer(text.encode(), np.uint8)


FOREIGN: dict[str, tuple[dict[str, np.ndarray | None], str]] = {
    "another shape": ({"1.bias": np.zeros(21, np.float32)}, "1.bias is float32 .21,., not float32 .20,."),
    "another dtype": ({"4.bias": np.zeros(10)}, "4.bias is float64"),
    "not finite": ({"4.bias": np.full(10, np.nan, np.float32)}, "numbers in 4.bias are not finite"),
    "an array less": ({"2.bias": None}, "no item named '2.bias.npy'"),
    "a pickle": ({"4.bias": np.array([object()])}, "Object arrays cannot be loaded"),
    "newer": ({"training": state(schema=2)}, "of schema 2; read here: 'parallel-core checkpoint' of 1"),
    "of something else": ({"training": state(format="x")}, "it is 'x' of schema 1"),
    "no object": ({"training": np.frombuffer(b"[]", np.uint8)}, "list indices"),
    "no JSON": ({"training": np.frombuffer(b"\xff{", np.uint8)}, ""),
    "contradictory": ({"training": state(step=4)}, "contradict each other at epoch 1, step 4"),
    "of a wrong type": ({"training": state(data="x")}, "Expected `int`"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_archives_of_others_are_refused(case: str) -> None:
    changed, told = FOREIGN[case]
    with pytest.raises(CheckpointError, match=rf"file is no whole checkpoint \(.*{told}"):
        as_read(archive(**changed))


@pytest.mark.parametrize("place", ["file", "file/below", "file-as-checkpoint"])
def test_what_is_no_directory_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file-as-checkpoint" / FILE).mkdir(parents=True)
    with pytest.raises(RequestError, match="cannot"):
        open_directory(tmp_path / place, resume=True)


@pytest.mark.parametrize(
    ("seed", "epoch", "images", "order"), [(0, 1, 100, 3236461665), (0, 2, 100, 3230131399), (7, 3, 60000, 54375313)]
)
def test_the_order_of_images_is_that_of_every_numpy(seed: int, epoch: int, images: int, order: int) -> None:
    assert crc32(shuffled(seed, epoch, images)[0].astype("<i8").tobytes()) == order


def test_the_first_parameters_and_synthetic_images_are_those_of_every_numpy() -> None:
    assert crc32(b"".join(array.tobytes() for array in initial_parameters())) == 3237401966
    assert synthetic("a test needs no more", train=100, test=5).checksum == 2946659676


def test_an_array_in_a_file_is_written_as_every_numpy_writes_it() -> None:
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (20,), }"
    with zipfile.ZipFile(io.BytesIO(whole())) as archive:
        content = archive.read("1.bias.npy")
    assert content[:128] == header.ljust(127) + b"\n"
    assert len(content) == 128 + 20 * 4
