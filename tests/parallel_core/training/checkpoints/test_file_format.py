"""Checkpoints on a disk that is full, damaged or somebody else's: one line, and never other parameters."""

import io
import json
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.errors import RequestError
from parallel_core.training.checkpoints import FILE, CheckpointError, from_bytes, open_directory, write_checkpoint
from parallel_core.training.lenet import shapes
from tests.parallel_core.training.checkpoints.small_training import kept, numpy


@cache
def whole() -> bytes:
    return kept(numpy(), every=3)[0]


def same_or_refused(content: bytes) -> None:
    try:
        found = from_bytes(content, "file")
    except CheckpointError:
        return
    expected = from_bytes(whole(), "file")
    assert found.state == expected.state
    for mine, other in zip(found.parameters, expected.parameters, strict=True):
        np.testing.assert_array_equal(mine, other)


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
    same_or_refused(bytes(content))


@given(st.integers(0, 1), st.floats(0, 1, exclude_max=True))
def test_a_part_of_a_file_is_refused(at_its_end: int, share: float) -> None:
    cut = int(share * len(whole()))
    with pytest.raises(CheckpointError, match=r"is no whole checkpoint .*remove it"):
        from_bytes(whole()[-cut:] if at_its_end and cut else whole()[:cut], "file")


@given(st.binary(max_size=200))
def test_bytes_of_others_are_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError, match="is no whole checkpoint"):
        from_bytes(content, "file")


def archive(**changed: np.ndarray) -> bytes:
    with np.load(io.BytesIO(whole())) as found:
        arrays = {name: changed.get(name, found[name]) for name in found}
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def state(**changed: object) -> np.ndarray:
    with np.load(io.BytesIO(whole())) as found:
        text = json.dumps({**json.loads(bytes(found["training"])), **changed})
    return np.frombuffer(text.encode(), np.uint8)


FOREIGN = {
    "another shape": ({"1.bias": np.zeros(21, np.float32)}, "has 1.bias as float32 .21,., not float32 .20,."),
    "another dtype": ({"4.bias": np.zeros(10)}, "has 4.bias as float64"),
    "not finite": ({"4.bias": np.full(10, np.nan, np.float32)}, "has numbers in 4.bias that are not finite"),
    "a pickle": ({"4.bias": np.array([object()])}, "is no whole checkpoint .Object arrays cannot be loaded"),
    "newer": ({"training": state(schema=2)}, "has schema 2, and this version reads 1: update parallel-core"),
    "of something else": ({"training": state(format="x")}, "is not a checkpoint of parallel-core"),
    "no object": ({"training": np.frombuffer(b"[]", np.uint8)}, "is not a checkpoint of parallel-core"),
    "no JSON": ({"training": np.frombuffer(b"\xff{", np.uint8)}, "is no whole checkpoint"),
    "contradictory": ({"training": state(step=4)}, "contradict each other at epoch 1, step 4"),
    "of a wrong type": ({"training": state(data="x")}, "is no whole checkpoint .Expected `int`"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_archives_of_others_are_refused(case: str) -> None:
    changed, told = FOREIGN[case]
    with pytest.raises(CheckpointError, match=told):
        from_bytes(archive(**changed), "file")


def test_an_archive_without_a_parameter_is_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole())) as old, zipfile.ZipFile(stream, "w") as new:
        for entry in old.infolist():
            if entry.filename != "2.bias.npy":
                new.writestr(entry, old.read(entry))
    with pytest.raises(CheckpointError, match=r"no item named '2\.bias\.npy'"):
        from_bytes(stream.getvalue(), "file")


def test_a_directory_is_made_and_a_checkpoint_in_it_is_not_overlooked(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    assert open_directory(directory, resume=True) is None
    write_checkpoint(directory, from_bytes(whole(), "file"))
    assert [entry.name for entry in directory.iterdir()] == [FILE]
    assert from_bytes(open_directory(directory, resume=True) or b"", "file").state.step == 3
    with pytest.raises(RequestError, match="exists: add --resume to go on from it, or remove it"):
        open_directory(directory, resume=False)


@pytest.mark.parametrize("place", ["file", "file/below", "file-as-checkpoint"])
def test_what_is_no_directory_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file-as-checkpoint" / FILE).mkdir(parents=True)
    with pytest.raises(RequestError, match="cannot"):
        open_directory(tmp_path / place, resume=True)
