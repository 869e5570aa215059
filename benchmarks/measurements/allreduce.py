"""Our allreduce against the book's loop and MXNet's key-value store, on two devices.

algbw is bytes of one device's vector / time. A logical CPU device is a core; the copy-bound limit
is the time in which both devices copy a vector at once: two vectors read and two written is the
least that an allreduce must do. Taken literally, the book's loop in PyTorch transfers nothing on a
CPU, where `.to` returns the same tensor; it is timed with transfers that copy, too, as between two
devices.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import sub, truediv
from typing import NamedTuple

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Variant,
    medians_of,
    parallel_core,
    take_turns,
    worker,
)
from benchmarks.harness.targets import Finding, Target, by_round, scaled
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidths import (
    algorithm_bandwidth,
)
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.measurement.differences import ratio_interval
from parallel_core.system.formatting import write_size

SMALL = "4KiB"
SIZES = {SMALL: 4096, "1MB": 1_000_000, "100MB": 100_000_000}
QUICK_SIZES = {SMALL: 4096, "1MB": 1_000_000, "10MB": 10_000_000}
OURS = ("native", "star", "plain copy")
"""The cases of a run of `allreduce` that are compared."""
MXNET, TORCH = "mxnet, ours, native", "torch, ours, native"
KVSTORE = "mxnet, kvstore device"
COPYING = "torch, the book's loop, transfers that copy"

Seconds = Mapping[str, Mapping[str, Sequence[float]]]
"""Of each algorithm and size, the medians of the processes."""


class Timed(NamedTuple):
    """What one process runs, and its cases by the names of their algorithms."""

    variant: Variant
    cases: Mapping[str, str]


def measure(request: Request) -> Iterator[Report]:
    """Time our sums, the book's and the frameworks' own, from 4 KiB to 100 MB."""
    sizes = QUICK_SIZES if request.quick else SIZES
    timed = what_is_timed(sizes)
    processes = take_turns([variant for variant, _ in timed], request.rounds)
    seconds: dict[str, dict[str, list[float]]] = {}
    for variant, cases in timed:
        for algorithm, case in cases.items():
            seconds[algorithm] = {}
            for size, length in sizes.items():
                medians = medians_of(processes[variant.name], f"{case}, {write_size(length)}")
                seconds[algorithm][size] = medians
    *_, largest = sizes
    yield Report([*comparisons(seconds, largest), *bandwidths(seconds, sizes)], processes)


def what_is_timed(sizes: Mapping[str, int]) -> list[Timed]:
    """List the processes of a round."""
    timed = []
    for backend in ("mxnet", "torch"):
        options = ("--backend", backend, "--algorithm", "native,star", "--sizes", ",".join(sizes))
        command = parallel_core("run", "allreduce", *options)
        cases = {f"{backend}, ours, {case}": case for case in OURS}
        timed.append(Timed(Variant(f"{backend} ours", command), cases))
    peers: Mapping[str, Mapping[str, str]] = {
        "mxnet": {"mxnet, the book's loop": "book"},
        "kvstore": {KVSTORE: "kvstore device"},
        "torch": {"torch, the book's loop": "book", COPYING: "book, copying"},
    }
    for peer, cases in peers.items():
        command = worker("allreduce", peer=peer, sizes=list(sizes.values()))
        timed.append(Timed(Variant(f"{peer}'s own", command), cases))
    return timed


def comparisons(seconds: Seconds, largest: str) -> list[Finding]:
    """List the ratios at the largest size, and the differences at the smallest."""

    def times_faster(ours: str, peer: str, target: Target | None) -> Finding:
        ratio = ratio_interval(seconds[peer][largest], seconds[ours][largest])
        return Finding(f"{largest}: {ours} / {peer}", ratio, target=target)

    def share_of_copy(ours: str, target: Target | None = None) -> Finding:
        copy = seconds[ours.replace("native", "plain copy")][largest]
        share = scaled(by_round(truediv, copy, seconds[ours][largest]), 100)
        return Finding(f"{largest}: {ours}: share of the copy-bound limit", share, "%", target)

    def longer(ours: str, peer: str, target: Target) -> Finding:
        difference = by_round(sub, seconds[ours][SMALL], seconds[peer][SMALL])
        return Finding(f"{SMALL}: {ours} − {peer}", scaled(difference, 1e6), "μs", target)

    return [
        times_faster(TORCH, COPYING, Target("at least", 8)),
        share_of_copy(TORCH, Target("at least", 70)),
        times_faster(MXNET, KVSTORE, Target("at least", 2.5)),
        times_faster(MXNET, "mxnet, the book's loop", None),
        share_of_copy(MXNET),
        longer(MXNET, "mxnet, ours, star", Target("at most", 20)),
        longer(TORCH, "torch, ours, star", Target("at most", 20)),
    ]


def bandwidths(seconds: Seconds, sizes: Mapping[str, int]) -> list[Finding]:
    """List algbw of everything at every size, and the times of the smallest, which are mostly those
    of the call.
    """
    findings = []
    for algorithm, by_size in seconds.items():
        time = scaled(median_interval(by_size[SMALL]), 1e6)
        findings.append(Finding(f"time, {SMALL}: {algorithm}", time, "μs"))
    for size, length in sizes.items():
        for algorithm, by_size in seconds.items():
            bandwidth = by_round(partial(algorithm_bandwidth, length), by_size[size])
            findings.append(Finding(f"algbw, {size}: {algorithm}", bandwidth, "GB/s"))
    return findings


MEASUREMENT = Measurement(
    file="allreduce",
    title="Allreduce on two devices",
    question="How fast are our sums beside the book's loop and the frameworks' own?",
    method=Method(1, "2026-11-24", "each peer in its own processes, one thread an operator"),
    measure=measure,
)
