"""Our allreduce against the book's loop, MXNet's key-value store and torch.distributed over gloo,
on two devices.

    python -m benchmarks.allreduce

algbw is bytes of one device's vector / time. A logical CPU device is a core; the copy-bound limit
is the time in which both devices copy a vector at once: two vectors read and two written is the
least that an allreduce must do. Taken literally, the book's loop in PyTorch transfers nothing on a
CPU, where `.to` returns the same tensor; it is timed with transfers that copy, too, as between two
devices.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import sub, truediv

from backends.host import core_numbers
from backends.process_groups.addresses import free_port
from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import Variant, parallel_core, take_turns, worker
from benchmarks.harness.targets import Finding, Target, by_round, scaled
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidths import (
    algorithm_bandwidth,
)
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.measurement.differences import ratio_interval
from parallel_core.system.formatting import write_size

SIZES = {"4KiB": 4096, "1MB": 1_000_000, "100MB": 100_000_000}
QUICK_SIZES = {"4KiB": 4096, "1MB": 1_000_000, "10MB": 10_000_000}
ALGORITHMS = ("native", "star")


@benchmark("allreduce", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Hold our allreduce against the book's and the frameworks' own, from 4 KiB to 100 MB."""
    sizes = QUICK_SIZES if quick else SIZES
    sides = [*peers(sizes)]
    processes = take_turns([variant for variant, _ in sides], rounds)
    seconds = {
        name: {
            size: [one.median(f"{case}, {write_size(length)}") for one in processes[variant.name]]
            for size, length in sizes.items()
        }
        for variant, cases in sides
        for name, case in cases.items()
    }
    largest = list(sizes)[-1]
    findings = [*targets(seconds, largest), *bandwidths(seconds, sizes)]
    return Report("Allreduce on two devices", findings, processes)


def peers(sizes: Mapping[str, int]) -> Iterator[tuple[Variant, Mapping[str, str]]]:
    """Iterate over what is run, and what is timed in it: our word, and the case, whose name the
    size follows.
    """
    own = partial(
        parallel_core,
        "run",
        "allreduce",
        "--algorithm",
        ",".join(ALGORITHMS),
        "--sizes",
        ",".join(sizes),
    )
    peer = partial(worker, "allreduce", sizes=list(sizes.values()))
    for name in ("mxnet", "torch"):
        cases = {f"{name}, ours, {case}": case for case in (*ALGORITHMS, "plain copy")}
        yield Variant(f"{name} ours", own("--backend", name)), cases
    yield Variant("mxnet book", peer(peer="mxnet")), {"mxnet, the book's loop": "book"}
    stores = {f"mxnet, {case}": case for case in ("kvstore local", "kvstore device")}
    yield Variant("mxnet kvstore", peer(peer="kvstore")), stores
    for threads, end in ((1, ""), (2, ", 2 threads")):
        loop = "torch, the book's loop"
        loops = {f"{loop}{end}": "book", f"{loop}, transfers that copy{end}": "book, copying"}
        yield Variant(f"torch book{end}", peer(peer="torch", threads=threads)), loops
    two = peer(peer="gloo", first_core=core_numbers()[0], port=free_port("127.0.0.1"))
    yield Variant("torch gloo", two, "each"), {"torch, gloo, 2 processes": "gloo"}


Seconds = Mapping[str, Mapping[str, Sequence[float]]]


def targets(seconds: Seconds, largest: str) -> list[Finding]:
    """Hold the largest size's ratios and the smallest one's differences against the targets."""

    def times_faster(mine: str, theirs: str, target: Target | None = None) -> Finding:
        ratio = ratio_interval(seconds[theirs][largest], seconds[mine][largest])
        return Finding(f"{largest}: {mine} / {theirs}", ratio, target=target)

    def slower(mine: str, theirs: str, target: Target | None = None) -> Finding:
        difference = by_round(sub, seconds[mine]["4KiB"], seconds[theirs]["4KiB"])
        return Finding(f"4KiB: {mine} − {theirs}", scaled(difference, 1e6), "μs", target)

    def share_of_copy(mine: str, target: Target | None = None) -> Finding:
        share = by_round(
            truediv, seconds[mine.replace("native", "plain copy")][largest], seconds[mine][largest]
        )
        return Finding(
            f"{largest}: {mine}: share of the copy-bound limit", scaled(share, 100), "%", target
        )

    torch, mxnet, book = "torch, ours, native", "mxnet, ours, native", "torch, the book's loop"
    return [
        times_faster(torch, f"{book}, transfers that copy", Target("at least", 8)),
        *(
            times_faster(torch, f"{book}{end}")
            for end in (", transfers that copy, 2 threads", "", ", 2 threads")
        ),
        times_faster(book, f"{book}, transfers that copy"),
        times_faster(torch, "torch, gloo, 2 processes"),
        share_of_copy(torch, Target("at least", 70)),
        times_faster(mxnet, "mxnet, kvstore device", Target("at least", 2.5)),
        times_faster(mxnet, "mxnet, kvstore local"),
        times_faster(mxnet, "mxnet, the book's loop"),
        share_of_copy(mxnet),
        slower(mxnet, "mxnet, ours, star", Target("at most", 20)),
        slower(torch, "torch, ours, star", Target("at most", 20)),
        slower(mxnet, "mxnet, the book's loop"),
        slower(torch, book),
    ]


def bandwidths(seconds: Seconds, sizes: Mapping[str, int]) -> list[Finding]:
    """List algbw of everything at every size, and the times of the smallest, which are mostly those
    of the call.
    """
    small = next(iter(sizes))
    return [
        *(
            Finding(f"time, {small}: {name}", scaled(median_interval(taken[small]), 1e6), "μs")
            for name, taken in seconds.items()
        ),
        *(
            Finding(
                f"algbw, {size}: {name}",
                by_round(partial(algorithm_bandwidth, length), taken[size]),
                "GB/s",
            )
            for size, length in sizes.items()
            for name, taken in seconds.items()
        ),
    ]


if __name__ == "__main__":
    main()
