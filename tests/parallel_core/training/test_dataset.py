"""Fashion-MNIST is found where it lies, refused where it is damaged, and never silently made up."""

import gzip
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.training import dataset
from parallel_core.training.dataset import (
    DEBIAN,
    FILES,
    DataError,
    load_fashion_mnist,
    parse_idx,
    read_directory,
    synthetic,
)

needs_data = pytest.mark.skipif(
    not all(dataset.locate(DEBIAN, name) for name in FILES), reason=f"Fashion-MNIST is not in {DEBIAN}"
)


@pytest.fixture(autouse=True)
def _no_other_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PARALLEL_CORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A copy of the real files that a test may damage."""
    copy = tmp_path / "copy"
    shutil.copytree(DEBIAN, copy)
    yield copy
    shutil.rmtree(copy)


@given(shape=st.lists(st.integers(0, 6), min_size=0, max_size=3), seed=st.integers(0, 2**32 - 1))
def test_idx_round_trip(shape: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    header = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    np.testing.assert_array_equal(parse_idx(header + values.tobytes()), values)


@given(content=st.binary(max_size=40))
def test_idx_of_anything_is_an_array_or_a_value_error(content: bytes) -> None:
    try:
        parsed = parse_idx(content)
    except ValueError:
        return
    assert parsed.size == len(content) - 4 - 4 * content[3]


@needs_data
def test_the_real_files() -> None:
    data = load_fashion_mnist()
    assert data.source == f"Fashion-MNIST from {DEBIAN}"
    assert data.train_images.shape == (60_000, 28, 28)
    assert data.test_images.shape == (10_000, 28, 28)
    assert np.bincount(data.train_labels).tolist() == [6000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10


@needs_data
def test_files_may_be_unpacked(folder: Path) -> None:
    for name in FILES:
        packed = folder / f"{name}.gz"
        (folder / name).write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert read_directory(folder).train_labels.shape == (60_000,)


@needs_data
def test_the_named_directory_comes_before_the_variable_and_that_before_the_rest(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARALLEL_CORE_DATA", str(folder))
    assert load_fashion_mnist().source == f"Fashion-MNIST from {folder}"
    assert load_fashion_mnist(DEBIAN).source == f"Fashion-MNIST from {DEBIAN}"
    cache = tmp_path / "cache" / "parallel-core" / "fashion-mnist"
    shutil.copytree(folder, cache)
    assert load_fashion_mnist().source == f"Fashion-MNIST from {folder}"
    monkeypatch.delenv("PARALLEL_CORE_DATA")
    assert load_fashion_mnist().source == f"Fashion-MNIST from {cache}"


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused_by_name(folder: Path, name: str) -> None:
    path = folder / f"{name}.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"{name}.gz cannot be read, it may be truncated"):
        read_directory(folder)


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_an_altered_file_is_refused_by_name(folder: Path, name: str) -> None:
    path = folder / f"{name}.gz"
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[-1] ^= 1
    path.write_bytes(gzip.compress(bytes(content), compresslevel=1))
    with pytest.raises(DataError, match=f"{name}.gz is not the original {name}"):
        read_directory(folder)


def test_a_named_directory_without_the_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"holds neither train-images-idx3-ubyte\.gz nor"):
        load_fashion_mnist(tmp_path)
    monkeypatch.setenv("PARALLEL_CORE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere cannot be read: No such file or directory"):
        load_fashion_mnist()


def test_without_files_and_network_a_synthetic_set_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "DEBIAN", tmp_path)
    # Nothing listens there: the download fails as it does without a network.
    monkeypatch.setattr(dataset, "ORIGIN", "http://127.0.0.1:9/")
    data = load_fashion_mnist()
    assert data.source.startswith(
        "synthetic images, since Fashion-MNIST is not on this machine and cannot be downloaded"
    )
    assert data.train_images.shape == (60_000, 28, 28)
    assert data.test_labels.shape == (10_000,)


def test_the_synthetic_set_is_always_the_same() -> None:
    first, second = synthetic("x", 50, 10), synthetic("x", 50, 10)
    np.testing.assert_array_equal(first.train_images, second.train_images)
    np.testing.assert_array_equal(first.test_labels, second.test_labels)
    assert first.train_images.dtype == np.uint8
    assert first.train_labels.dtype == np.int32
