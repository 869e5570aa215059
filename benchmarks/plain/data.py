"""Batches of Fashion-MNIST as one would make them with NumPy alone: the preprocessing that all training here shares."""

from collections.abc import Iterator

import numpy as np

from parallel_core.training.dataset import Dataset

__all__ = ["batches"]


def batches(data: Dataset, batch_size: int, limit: int, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Iterate over an epoch's first `limit` batches in the order that parallel-core's seed 0 gives them.

    Images are float32 (n, 1, 28, 28) from 0 to 1, labels int32 (n,).
    """
    order = np.random.default_rng((0, epoch)).permutation(len(data.train_labels))
    for first in range(0, limit * batch_size, batch_size):
        rows = order[first : first + batch_size]
        yield data.train_images[rows][:, None].astype(np.float32) / np.float32(255), data.train_labels[rows]
