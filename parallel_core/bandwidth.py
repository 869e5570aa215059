"""How fast an allreduce is: its bandwidth as the caller sees it, and as the links between devices do.

Source: nccl-tests, PERFORMANCE.md. GB are decimal, and no figure is clamped.
"""

from collections.abc import Mapping

__all__ = ["algorithm_bandwidth", "bus_bandwidth", "by_algorithm"]


def algorithm_bandwidth(size: float, seconds: float) -> float:
    """Return the GB/s at which vectors of `size` bytes, one per device, are summed: size / time."""
    return size / seconds / 1e9


def bus_bandwidth(algorithm_bandwidth: float, devices: int) -> float:
    """Return the GB/s that each device's link carries if no bytes are sent in vain: 2(n − 1)/n of the algorithm's.

    It does not depend on the number of devices where the links are the limit.
    """
    return algorithm_bandwidth * 2 * (devices - 1) / devices


def by_algorithm(series: Mapping[str, tuple[float, ...]], figure: str) -> dict[str, tuple[float, ...]]:
    """Return a figure over sizes by algorithm, from a result's series `FIGURE ALGORITHM`."""
    prefix = f"{figure} "
    return {name.removeprefix(prefix): values for name, values in series.items() if name.startswith(prefix)}
