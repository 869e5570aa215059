"""Fashion-MNIST for training that is timed and not judged."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parallel_core.training.dataset import Dataset, load_fashion_mnist

__all__ = ["batches", "few_tests"]

TESTS = 8


def few_tests() -> Dataset:
    """Load it with a handful of test images: what follows an epoch would take as long as the epoch."""
    data = load_fashion_mnist()
    return replace(data, test_images=data.test_images[:TESTS], test_labels=data.test_labels[:TESTS])


def batches(data: Dataset, batch_size: int, limit: int, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Iterate over an epoch's first `limit` batches as one makes them with NumPy alone, in the order of our seed 0.

    Images are float32 (n, 1, 28, 28) from 0 to 1, labels int32 (n,).
    """
    order = np.random.default_rng((0, epoch)).permutation(len(data.train_labels))
    for first in range(0, limit * batch_size, batch_size):
        rows = order[first : first + batch_size]
        yield data.train_images[rows][:, None].astype(np.float32) / np.float32(255), data.train_labels[rows]
