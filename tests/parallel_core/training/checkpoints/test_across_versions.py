"""A training can go on in another environment: NumPy 1 and NumPy 2 draw the same numbers and write the same arrays.

MXNet ends at NumPy 1.23 and JAX begins at NumPy 2, so no environment holds both. The constants were found the same in
both, and this runs in both.
"""

import io
import zipfile
from zlib import crc32

import pytest

from parallel_core.training.batches import shuffled
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters
from tests.parallel_core.training.checkpoints.small_training import kept, numpy


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
    with zipfile.ZipFile(io.BytesIO(kept(numpy())[0])) as archive:
        content = archive.read("1.bias.npy")
    assert content[:128] == header.ljust(127) + b"\n"
    assert len(content) == 128 + 20 * 4
