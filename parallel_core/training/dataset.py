"""Fashion-MNIST from a directory that the user names, the cache, Debian's package, or the network.

If none of these has the data, synthetic data of the same shape take their place, and their `source`
says so. Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
Learning Algorithms", 2017.
"""

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from parallel_core.system.errors import RequestError

ORIGIN = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
VARIABLE = "PARALLEL_CORE_DATA"
DOWNLOAD_SECONDS = 10

FILES = {
    "train-images-idx3-ubyte": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    ),
    "train-labels-idx1-ubyte": (
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "25c81989df183df01b3e8a0aad5dffbe",
    ),
    "t10k-images-idx3-ubyte": (
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "bef4ecab320f06d8554ea6380940ec79",
    ),
    "t10k-labels-idx1-ubyte": (
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
}
"""The checksums of the four files: the SHA-256 of the unpacked content, and the authors' MD5 of the
packed file, which Debian has packed anew.
"""


class DataError(RequestError):
    """A file of the data is missing, unreadable, truncated or altered."""


@dataclass(frozen=True)
class Dataset:
    """Images, uint8 (n, 28, 28), and their labels, int32 (n,) from 0 to 9."""

    source: str
    """Where the data came from; it begins with `synthetic` if they are synthetic."""
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @cached_property
    def checksum(self) -> int:
        """The CRC-32 of the training images and labels."""
        return zlib.crc32(self.train_labels.tobytes(), zlib.crc32(self.train_images.tobytes()))

    def tested_on(self, images: int) -> "Dataset":
        """Return the data with only the first test `images`, a number of them."""
        return replace(
            self, test_images=self.test_images[:images], test_labels=self.test_labels[:images]
        )


def load_fashion_mnist(data_dir: Path | None = None) -> Dataset:
    """Load the data from `data_dir`, $PARALLEL_CORE_DATA, a cache, Debian's package or the web.

    If none of these has them, return synthetic data. Raises DataError if a directory that the user
    names does not hold the original data.
    """
    directory = find_fashion_mnist(data_dir)
    if directory is None:
        directory = cache_directory()
        try:
            _download(directory)
        except (OSError, ValueError) as error:
            reason = type(error).__name__
            return synthetic(
                f"Fashion-MNIST is not on this machine and cannot be downloaded ({reason})"
            )
    return read_directory(directory)


def find_fashion_mnist(data_dir: Path | None = None) -> Path | None:
    """Return the directory to read: the one that the user names, or the first that has all files.

    None if there is no such directory.
    """
    if data_dir is not None:
        return data_dir
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    for directory in (cache_directory(), DEBIAN):
        if _holds_all_files(directory):
            return directory
    return None


def _holds_all_files(directory: Path) -> bool:
    """Return whether a directory may be read and has the four files."""
    try:
        return all(locate(directory, name) for name in FILES)
    except OSError:
        return False


def cache_directory() -> Path:
    """Return the directory of downloaded data in the user's cache."""
    # This import is here because synthetic data must work where only NumPy is installed.
    import platformdirs

    return platformdirs.user_cache_path("parallel-core") / "fashion-mnist"


def read_directory(directory: Path) -> Dataset:
    """Read the four files, packed or not, from a directory.

    Raises DataError, which names the file, if one is missing or not the original.
    """
    train_images, train_labels, test_images, test_labels = (
        _read_file(directory, name) for name in FILES
    )
    source = f"Fashion-MNIST from {directory}"
    return Dataset(
        source,
        train_images,
        train_labels.astype(np.int32),
        test_images,
        test_labels.astype(np.int32),
    )


def _read_file(directory: Path, name: str) -> np.ndarray:
    """Read the array in one file, packed or not; raises DataError if it is not the original."""
    try:
        path = locate(directory, name)
        if path is None:
            raise DataError(f"{directory} holds neither {name}.gz nor {name}")
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{directory / name} cannot be read, it may be truncated: {error}"
        ) from error
    if hashlib.sha256(content).hexdigest() != FILES[name][0]:
        raise DataError(f"{path} is not the original {name}: its content was truncated or altered")
    # The format IDX: two zero bytes, the type (8: uint8), the number of dimensions, their lengths
    # as big-endian uint32, then the values.
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    return values.reshape(shape)


def locate(directory: Path, name: str) -> Path | None:
    """Return the path of a file in a directory, packed or not; None if it is missing."""
    for path in (directory / f"{name}.gz", directory / name):
        if path.is_file():
            return path
    return None


def _download(directory: Path) -> None:
    """Download the four packed files into a directory, and check the authors' checksums."""
    import pooch

    for name, (_, checksum) in FILES.items():
        pooch.retrieve(
            f"{ORIGIN}{name}.gz",
            known_hash=f"md5:{checksum}",
            fname=f"{name}.gz",
            path=directory,
            downloader=pooch.HTTPDownloader(timeout=DOWNLOAD_SECONDS),
        )


def synthetic(reason: str, train: int = 60_000, test: int = 10_000) -> Dataset:
    """Synthesise images, always the same: a pattern of squares for each label, under noise.

    `train` and `test` are the numbers of images; `reason` becomes a part of the source.
    """
    generator = np.random.default_rng(0)
    patterns_7x7 = generator.integers(0, 2, (10, 7, 7))
    squares = np.ones((4, 4), dtype=np.int64)
    patterns = (128 * np.kron(patterns_7x7, squares)).astype(np.uint8)

    def images(labels: np.ndarray) -> np.ndarray:
        noise = generator.integers(0, 128, (len(labels), 28, 28), dtype=np.uint8)
        return patterns[labels] + noise

    train_labels = generator.integers(0, 10, train, dtype=np.int32)
    test_labels = generator.integers(0, 10, test, dtype=np.int32)
    return Dataset(
        f"synthetic images, since {reason}",
        images(train_labels),
        train_labels,
        images(test_labels),
        test_labels,
    )
