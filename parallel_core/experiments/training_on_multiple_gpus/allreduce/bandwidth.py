"""How fast an allreduce is: its bandwidth as the caller sees it, and as the links between devices do.

Source: nccl-tests, PERFORMANCE.md. GB are decimal, and no figure is clamped.
"""

__all__ = ["algorithm_bandwidth", "bus_bandwidth"]


def algorithm_bandwidth(size: float, seconds: float) -> float:
    """Return the GB/s at which vectors of `size` bytes, one per device, are summed: size / time."""
    return size / seconds / 1e9


def bus_bandwidth(algorithm_bandwidth: float, devices: int) -> float:
    """Return the GB/s that each device's link carries if no bytes are sent in vain: 2(n − 1)/n of the algorithm's.

    It does not depend on the number of devices if the links are the limit.
    """
    return algorithm_bandwidth * 2 * (devices - 1) / devices
