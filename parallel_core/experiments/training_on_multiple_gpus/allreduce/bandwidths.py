"""The bandwidths of sums, as nccl-tests defines them (PERFORMANCE.md): GB are decimal, and no
figure is clamped.
"""

from collections.abc import Sequence
from operator import truediv

from parallel_core.experiments.runner.formulas import Times, Values, ratio
from parallel_core.experiments.runner.trial import Trial
from parallel_core.system.formatting import write_size

ALGBW, BUSBW = "algbw_gb_per_s", "busbw_gb_per_s"
PLAIN_COPY, ONE_STREAM = "plain copy", "one TCP stream"
SHARES = {PLAIN_COPY: "share_of_copy_bound", ONE_STREAM: "share_of_stream_bound"}
"""The names of the figures that compare a sum with a bound, by the bound."""


def algorithm_bandwidth(size: float, seconds: float) -> float:
    """Return the GB/s at which vectors of `size` bytes, one per device, are summed: size / time."""
    return size / seconds / 1e9


def case_of_size(name: str, size: int) -> str:
    """Name the case of vectors of `size` bytes: `native, 4 MiB`."""
    return f"{name}, {write_size(size)}"


def find_bandwidths(
    trial: Trial, sizes: Sequence[int], names: Sequence[str], bound: str, devices: int
) -> None:
    """Find the bandwidths of all algorithms over the sizes, and the figures at the largest size.

    The figures at the largest size are those of the algorithm `native`, or else of the last one.
    The series are named `FIGURE ALGORITHM`; the sizes are the series `bytes`. busbw is the
    bandwidth of each device's link, if no bytes are sent in vain.
    """
    vectors_per_link = 2 * (devices - 1) / devices
    medians: dict[str, list[float]] = {}
    for name in (bound, *names):
        medians[name] = [trial.cases[case_of_size(name, size)].median for size in sizes]
    series = {"bytes": tuple(map(float, sizes))}
    series[f"{ALGBW} {bound}"] = tuple(map(algorithm_bandwidth, sizes, medians[bound]))
    for name in names:
        bandwidths = tuple(map(algorithm_bandwidth, sizes, medians[name]))
        shares = map(truediv, medians[bound], medians[name])
        series[f"{ALGBW} {name}"] = bandwidths
        series[f"{BUSBW} {name}"] = tuple(vectors_per_link * bandwidth for bandwidth in bandwidths)
        series[f"{SHARES[bound]} {name}"] = tuple(shares)
    trial.described["series"] = series
    trial.parameters["algorithms"] = ",".join(names)
    written_sizes = [write_size(size).replace(" ", "") for size in sizes]
    trial.parameters["sizes"] = ",".join(written_sizes)

    largest = sizes[-1]
    main_algorithm = "native" if "native" in names else names[-1]
    case = case_of_size(main_algorithm, largest)

    def algbw(times: Times) -> Values:
        return algorithm_bandwidth(largest, times[case])

    trial.found_by(ALGBW, algbw)
    trial.found_by(BUSBW, lambda times: vectors_per_link * algbw(times))
    trial.found_by(SHARES[bound], ratio(case_of_size(bound, largest), case))
    for name in ("native", "sharded"):
        speedup = ratio(case_of_size("star", largest), case_of_size(name, largest))
        trial.found_by(f"{name}_speedup_over_star", speedup)
