"""Check that all devices hold the same parameters after a step, those of other processes too.

Processes exchange nothing but sums, so each device's parameters are reduced to a digest of a few small numbers.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from backends import Array, Backend
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.training.loop import sum_over_devices
from parallel_core.training.step import devices_of

__all__ = ["count_replicas", "largest_replica_difference"]


def count_replicas(backend: Backend, params: Sequence[Array]) -> int:
    """Count the devices that hold parameters, over all processes."""
    return int(sum_over_devices(backend, devices_of(backend, params), [[1.0] for _ in params])[0])


def largest_replica_difference(backend: Backend, params: Sequence[Array]) -> float:
    """Return the largest relative difference of any device's parameters from the first one's.

    0 if all are equal to the last bit; infinite if those of another process differ, however little.
    """
    replicas = [backend.to_numpy(p) for p in params]
    difference = largest_of(
        relative_error(mine, first) for replica in replicas for mine, first in zip(replica, replicas[0], strict=True)
    )
    digests = [_digest(replica) for replica in replicas]
    sums = sum_over_devices(backend, devices_of(backend, params), digests)
    # Sums of bytes are exact: if all digests are equal, the sum is a multiple of each.
    alike = np.array_equal(sums, np.multiply(digests[0], count_replicas(backend, params)))
    return difference if alike or difference else float("inf")


def _digest(replica: Sequence[np.ndarray]) -> list[float]:
    """Return a digest of some arrays, as 32 whole numbers below 256."""
    hashed = hashlib.sha256()
    for array in replica:
        hashed.update(np.ascontiguousarray(array).tobytes())
    return [float(byte) for byte in hashed.digest()]
