"""How fast an allreduce is: its bandwidth as the caller sees it, and as the links between devices do.

Source: nccl-tests, PERFORMANCE.md. GB are decimal, and no figure is clamped.
"""

from collections.abc import Sequence

from parallel_core.experiments.runner.trial import Trial
from parallel_core.system.formatting import write_size

__all__ = ["ALGBW", "SHARES", "algorithm_bandwidth", "bus_bandwidth", "case_name", "find_bandwidths"]

ALGBW, BUSBW = "algbw_gb_per_s", "busbw_gb_per_s"
PLAIN_COPY, ONE_STREAM = "plain copy", "one TCP stream"
SHARES = {PLAIN_COPY: "share_of_copy_bound", ONE_STREAM: "share_of_stream_bound"}
"""By what bounds a sum, the figure that says how near it comes."""


def algorithm_bandwidth(size: float, seconds: float) -> float:
    """Return the GB/s at which vectors of `size` bytes, one per device, are summed: size / time."""
    return size / seconds / 1e9


def bus_bandwidth(algorithm_bandwidth: float, devices: int) -> float:
    """Return the GB/s that each device's link carries if no bytes are sent in vain: 2(n − 1)/n of the algorithm's.

    It does not depend on the number of devices if the links are the limit.
    """
    return algorithm_bandwidth * 2 * (devices - 1) / devices


def case_name(name: str, size: int) -> str:
    """Name the case of something that is done with vectors of so many bytes."""
    return f"{name}, {write_size(size)}"


def find_bandwidths(trial: Trial, sizes: Sequence[int], names: Sequence[str], bound: str, devices: int) -> None:
    """Keep the series of some algorithms over the sizes, and the metrics of one of them at the largest size.

    It is `native`, or the last algorithm. Series are `FIGURE ALGORITHM`, and the sizes themselves `bytes`.
    """
    series = {"bytes": tuple(map(float, sizes))}
    for name in (bound, *names):
        seconds, bounds = ([trial.cases[case_name(one, size)].median for size in sizes] for one in (name, bound))
        bandwidths = [algorithm_bandwidth(*each) for each in zip(sizes, seconds, strict=True)]
        series[f"{ALGBW} {name}"] = tuple(bandwidths)
        if name != bound:
            series[f"{BUSBW} {name}"] = tuple(bus_bandwidth(one, devices) for one in bandwidths)
            series[f"{SHARES[bound]} {name}"] = tuple(b / mine for b, mine in zip(bounds, seconds, strict=True))
    trial.described["series"] = series
    trial.parameters["algorithms"] = ",".join(names)
    trial.parameters["sizes"] = ",".join(write_size(size).replace(" ", "") for size in sizes)

    largest = sizes[-1]
    judged, least = (case_name(name, largest) for name in ("native" if "native" in names else names[-1], bound))
    trial.found_by(ALGBW, lambda times: algorithm_bandwidth(largest, times[judged]))
    trial.found_by(BUSBW, lambda times: bus_bandwidth(algorithm_bandwidth(largest, times[judged]), devices))
    trial.found_by(SHARES[bound], lambda times: times[least] / times[judged])
