"""What an allreduce's times say: its bandwidths over the size, and its share of the speed that bounds it."""

from collections.abc import Mapping, Sequence
from typing import Any

from backends import Backend
from parallel_core.experiments.measuring import result_of
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidth import algorithm_bandwidth, bus_bandwidth
from parallel_core.experiments.training_on_multiple_gpus.allreduce.checks import LARGEST_ERROR
from parallel_core.experiments.training_on_multiple_gpus.allreduce.parts import ONE_ROOT, SPREAD_ROOTS
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import ONE_STREAM, PLAIN_COPY
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.verdicts import over_rounds, times_as_long
from parallel_core.system.formatting import write_size

__all__ = ["Timed", "result_with"]

Timed = Mapping[int, Mapping[str, Case]]
"""Cases by the vectors' size in bytes, and by algorithm; one of them is the bound, PLAIN_COPY or ONE_STREAM."""
SHARES = {PLAIN_COPY: "share_of_copy_bound", ONE_STREAM: "share_of_stream_bound"}


def result_with(
    backend: Backend,
    timed: Timed,
    errors: Sequence[float],
    devices: int,
    judged: str,
    rounds: int,
    budget: float,
    parts: Mapping[str, Case],
    **described: Any,
) -> Result:
    """Return the result of sums over so many devices; the metrics are those of `judged` at the largest size.

    `parts` are the cases of what `parts.time_parts` timed, which are metrics too; empty if it timed nothing.
    """
    most = max(timed)
    largest = timed[most]
    (bound,) = SHARES.keys() & largest.keys()
    intervals = {
        SHARES[bound]: times_as_long(largest[bound], largest[judged]),
        "algbw_gb_per_s": over_rounds(lambda seconds: most / seconds / 1e9, largest[judged].seconds),
    }
    if parts:
        intervals["spread_roots_speedup"] = times_as_long(parts[ONE_ROOT], parts[SPREAD_ROOTS])
    series = _series_of(timed, devices)
    names = [name for name in next(iter(timed.values())) if name not in SHARES]
    return result_of(
        "allreduce",
        backend,
        parameters={
            "algorithms": ",".join(names),
            "sizes": ",".join(write_size(size).replace(" ", "") for size in timed),
            "rounds": rounds,
            "budget": budget,
        },
        cases=[case for cases in (*timed.values(), parts) for case in cases.values()],
        metrics={name.split()[0]: values[-1] for name, values in series.items() if name.endswith(f" {judged}")}
        | {name: interval.estimate for name, interval in intervals.items()}
        | {f"{name.replace(' ', '_')}_seconds": case.median for name, case in parts.items()},
        intervals=intervals,
        error=largest_of(errors),
        compared="sums",
        limit=LARGEST_ERROR,
        series=series,
        **described,
    )


def _series_of(timed: Timed, devices: int) -> dict[str, tuple[float, ...]]:
    """Return the figures over sizes, `FIGURE ALGORITHM` each, and the sizes themselves as `bytes`."""
    series: dict[str, tuple[float, ...]] = {"bytes": tuple(map(float, timed))}
    (bound,) = SHARES.keys() & next(iter(timed.values())).keys()
    for name in next(iter(timed.values())):
        bandwidths = tuple(algorithm_bandwidth(size, cases[name].median) for size, cases in timed.items())
        series[f"algbw_gb_per_s {name}"] = bandwidths
        if name != bound:
            series[f"busbw_gb_per_s {name}"] = tuple(bus_bandwidth(one, devices) for one in bandwidths)
            series[f"{SHARES[bound]} {name}"] = tuple(
                cases[bound].median / cases[name].median for cases in timed.values()
            )
    return series
