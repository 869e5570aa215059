"""What programs find to be wrong reaches whoever waits, whatever other devices and threads do meanwhile."""

import numpy as np
import pytest

from backends import Array, Backend, ComputationError


def test_a_wrong_label_is_found_while_another_device_is_busy(jax_backend: Backend) -> None:
    ops, (busy, other) = jax_backend.ops, jax_backend.devices
    matrix = jax_backend.asarray(np.full((600, 600), 1 / 600, np.float32), busy)
    labels = jax_backend.asarray(np.zeros(600, np.int32), busy)
    scores = jax_backend.asarray(np.ones((2, 3), np.float32), other)
    right, wrong = (jax_backend.asarray(np.full(2, label), other) for label in (2, 3))

    def slow(x: Array, labels: Array) -> Array:
        y = x
        for _ in range(20):
            y = ops.matmul(y, x)
        return ops.cross_entropy(y, labels)

    # Compiled before the other device begins.
    jax_backend.wait(jax_backend.launch(ops.cross_entropy, scores, right))
    later = jax_backend.launch(slow, matrix, labels)
    with pytest.raises(ComputationError, match="cross_entropy takes labels from 0 to 2"):
        jax_backend.wait(jax_backend.launch(ops.cross_entropy, scores, wrong))
    del later
