"""Fashion-MNIST is found where it lies, refused where it is damaged, and never silently made up."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from parallel_core.training import dataset
from parallel_core.training.dataset import (
    DEBIAN,
    FILES,
    DataError,
    load_fashion_mnist,
    read_directory,
)

needs_data = pytest.mark.skipif(
    not all(dataset.locate(DEBIAN, name) for name in FILES),
    reason=f"Fashion-MNIST is not in {DEBIAN}",
)


@pytest.fixture(autouse=True)
def _no_other_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PARALLEL_CORE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the real files that a test may damage."""
    return Path(shutil.copytree(DEBIAN, tmp_path / "copy"))


@needs_data
def test_the_real_files_are_found_in_the_order_of_places_and_may_be_unpacked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named directory comes before the variable, that before the cache, and that before Debian's
    package.
    """
    data = load_fashion_mnist()
    assert data.source == f"Fashion-MNIST from {DEBIAN}"
    assert (data.train_images.shape, data.test_images.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert round(float(data.train_images.mean()), 4) == 72.9404
    assert np.bincount(data.train_labels).tolist() == [6000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    for packed in folder.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    cache = shutil.copytree(folder, tmp_path / "cache" / "parallel-core" / "fashion-mnist")
    assert load_fashion_mnist().source == f"Fashion-MNIST from {cache}"
    monkeypatch.setenv("PARALLEL_CORE_DATA", str(folder))
    assert load_fashion_mnist().source == f"Fashion-MNIST from {folder}"
    assert load_fashion_mnist(DEBIAN).source == f"Fashion-MNIST from {DEBIAN}"


@needs_data
def test_a_damaged_file_is_refused_by_name(folder: Path) -> None:
    # One file stands for all: the same function reads each.
    name = "train-labels-idx1-ubyte"
    path = folder / f"{name}.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=f"{name} cannot be read, it may be truncated"):
        read_directory(folder)
    content = bytearray(gzip.decompress(whole))
    content[-1] ^= 1
    path.write_bytes(gzip.compress(bytes(content), compresslevel=1))
    with pytest.raises(DataError, match=f"{name}.gz is not the original {name}"):
        read_directory(folder)


def test_a_named_directory_without_the_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARALLEL_CORE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="nowhere holds neither"):
        load_fashion_mnist()


def test_without_files_and_network_a_synthetic_set_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "DEBIAN", tmp_path)
    # Nothing listens there: the download fails as it does without a network.
    monkeypatch.setattr(dataset, "ORIGIN", "http://127.0.0.1:9/")
    data = load_fashion_mnist()
    assert data.source.startswith("synthetic images, since ")
    assert (data.train_images.shape, data.train_images.dtype) == ((60_000, 28, 28), np.uint8)
    assert (data.test_labels.shape, data.test_labels.dtype) == ((10_000,), np.int32)
