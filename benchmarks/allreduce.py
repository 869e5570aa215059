"""Our allreduce against the book's loop, MXNet's key-value store and torch.distributed over gloo, on two devices.

    python -m benchmarks.allreduce

algbw is bytes of one device's vector / time. A logical CPU device is a core; the copy-bound limit is the time in which
both devices copy a vector at once: two vectors read and two written is the least that an allreduce must do.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.harness.findings import Finding, Report, Target, benchmark
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    difference_by_round,
    independent,
    parallel_core,
    scaled,
    take_turns,
    worker,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.sums import algorithm_bandwidth
from parallel_core.measurement.confidence_intervals import median_interval

SIZES = {"4KiB": 4096, "1MB": 1_000_000, "100MB": 100_000_000}
QUICK_SIZES = {"4KiB": 4096, "1MB": 1_000_000, "10MB": 10_000_000}
ALGORITHMS = ("native", "star")
BACKENDS = ("mxnet", "torch")
# What is timed of each peer's process: our word for it, and the beginning of its cases' names.
PEERS: Mapping[str, Mapping[str, str]] = {
    "mxnet book": {"mxnet, the book's loop": "book"},
    "mxnet kvstore": {"mxnet, kvstore local": "kvstore local", "mxnet, kvstore device": "kvstore device"},
    "torch book": {
        "torch, the book's loop": "book",
        "torch, the book's loop, transfers that copy": "book, copying",
    },
    "torch book, 2 threads": {
        "torch, the book's loop, 2 threads": "book",
        "torch, the book's loop, transfers that copy, 2 threads": "book, copying",
    },
    "torch gloo": {"torch, gloo, 2 processes": "gloo"},
}


@benchmark("allreduce", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Hold our allreduce against the book's and the frameworks' own, from 4 KiB to 100 MB."""
    sizes = QUICK_SIZES if quick else SIZES
    processes = take_turns(variants(sizes), rounds)
    seconds = {
        **{
            f"{name}, ours, {algorithm}": by_size(processes[f"{name} ours"], algorithm, sizes)
            for name in BACKENDS
            for algorithm in (*ALGORITHMS, "plain copy")
        },
        **{
            name: by_size(processes[process], case, sizes)
            for process, cases in PEERS.items()
            for name, case in cases.items()
        },
    }
    largest = list(sizes)[-1]
    findings = [*targets(seconds, largest), *bandwidths(seconds, sizes)]
    return Report("Allreduce on two devices", findings, processes, [note(seconds, largest)])


def variants(sizes: Mapping[str, int]) -> list[Variant]:
    """Make the commands: ours, then the peers."""
    lengths = list(sizes.values())
    own = ("--algorithm", ",".join(ALGORITHMS), "--sizes", ",".join(sizes))
    return [
        *(Variant(f"{name} ours", parallel_core("run", "allreduce", "--backend", name, *own)) for name in BACKENDS),
        Variant("mxnet book", worker("device_allreduce", peer="mxnet", sizes=lengths, threads=1)),
        Variant("mxnet kvstore", worker("device_allreduce", peer="kvstore", sizes=lengths, threads=1)),
        Variant("torch book", worker("device_allreduce", peer="torch", sizes=lengths, threads=1)),
        Variant("torch book, 2 threads", worker("device_allreduce", peer="torch", sizes=lengths, threads=2)),
        Variant("torch gloo", worker("gloo", sizes=lengths)),
    ]


def by_size(processes: Sequence[Measured], case: str, sizes: Mapping[str, int]) -> dict[str, list[float]]:
    """Return each process's median seconds by size; its cases `CASE, SIZE` come in the order of the sizes."""
    medians: dict[str, list[float]] = {size: [] for size in sizes}
    for one in processes:
        # `book` is not `book, copying`.
        named = [seconds for name, seconds in one.seconds.items() if name.rsplit(", ", 1)[0] == case]
        for size, seconds in zip(sizes, named, strict=True):
            medians[size].append(median(seconds))
    return medians


Seconds = Mapping[str, Mapping[str, Sequence[float]]]


def targets(seconds: Seconds, largest: str) -> list[Finding]:
    """Hold the largest size's ratios and the smallest one's differences against the targets."""

    def times_faster(mine: str, theirs: str, bound: float | None = None) -> Finding:
        ratio = independent(seconds[theirs][largest], seconds[mine][largest])
        return Finding(f"{largest}: {mine} / {theirs}", ratio, target=Target("at least", bound) if bound else None)

    def slower(mine: str, theirs: str, bound: float | None = None) -> Finding:
        difference = difference_by_round(seconds[mine]["4KiB"], seconds[theirs]["4KiB"])
        return Finding(
            f"4KiB: {mine} − {theirs}", scaled(difference, 1e6), "μs", Target("at most", bound) if bound else None
        )

    def share_of_copy(backend: str, bound: float | None = None) -> Finding:
        native, copied = (seconds[f"{backend}, ours, {case}"][largest] for case in ("native", "plain copy"))
        share = median_interval([copy / mine for copy, mine in zip(copied, native, strict=True)])
        name = f"{largest}: {backend}, ours, native: share of the copy-bound limit"
        return Finding(name, scaled(share, 100), "%", Target("at least", bound) if bound else None)

    return [
        times_faster("torch, ours, native", "torch, the book's loop, transfers that copy", 8),
        times_faster("torch, ours, native", "torch, the book's loop, transfers that copy, 2 threads"),
        times_faster("torch, ours, native", "torch, the book's loop"),
        times_faster("torch, ours, native", "torch, the book's loop, 2 threads"),
        times_faster("torch, ours, native", "torch, gloo, 2 processes"),
        share_of_copy("torch", 70),
        times_faster("mxnet, ours, native", "mxnet, kvstore device", 2.5),
        times_faster("mxnet, ours, native", "mxnet, kvstore local"),
        times_faster("mxnet, ours, native", "mxnet, the book's loop"),
        share_of_copy("mxnet"),
        slower("mxnet, ours, native", "mxnet, ours, star", 20),
        slower("torch, ours, native", "torch, ours, star", 20),
        slower("mxnet, ours, native", "mxnet, the book's loop"),
        slower("torch, ours, native", "torch, the book's loop"),
    ]


def bandwidths(seconds: Seconds, sizes: Mapping[str, int]) -> list[Finding]:
    """List algbw of everything at every size, and the times of the smallest, which are mostly those of the call."""
    small = next(iter(sizes))
    return [
        *(
            Finding(f"time, {small}: {name}", scaled(median_interval(taken[small]), 1e6), "μs")
            for name, taken in seconds.items()
        ),
        *(
            Finding(
                f"algbw, {size}: {name}",
                median_interval([algorithm_bandwidth(length, one) for one in taken[size]]),
                "GB/s",
            )
            for size, length in sizes.items()
            for name, taken in seconds.items()
        ),
    ]


def note(seconds: Seconds, largest: str) -> str:
    """Write what the book's transfers cost if they are copies: in PyTorch on one CPU they are not."""
    literal, copying = (
        median(seconds[f"torch, the book's loop{end}"][largest]) for end in ("", ", transfers that copy")
    )
    return (
        "Taken literally, the book's loop in PyTorch transfers nothing on a CPU: `.to` returns the same tensor. "
        f"With transfers that copy, as between two devices, it takes {copying / literal:.1f} × as long at {largest}."
    )


if __name__ == "__main__":
    main()
