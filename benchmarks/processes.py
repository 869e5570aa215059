"""Allreduce between two processes of this machine, by gloo and by dist_sync, against one loopback TCP stream.

    python -m benchmarks.processes

Each process has a core and a device. algbw is bytes of one process's vector / time. The stream carries each vector
once, one way, and is timed in turns with the sums, by the same processes. dist_sync has a server too, a third process.
"""

from collections.abc import Sequence

from benchmarks.harness.findings import Finding, Report, benchmark
from benchmarks.harness.side_by_side import Measured, Variant, launched, scaled, take_turns, worker
from parallel_core.experiments.training_on_multiple_gpus.allreduce.sums import algorithm_bandwidth
from parallel_core.measurement.confidence_intervals import Interval, median_interval
from parallel_core.system.formatting import write_size

SIZES = (4096, 65_536, 1_000_000, 10_000_000, 100_000_000)
QUICK_SIZES = (4096, 1_000_000)
ENGINES = {"torch": "gloo", "mxnet": "dist_sync"}
ALONE = "one TCP stream"


@benchmark("processes", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Hold allreduce between two processes against one TCP stream, from 4 KiB to 100 MB."""
    sizes = QUICK_SIZES if quick else SIZES
    processes = take_turns(variants(sizes), rounds)
    findings = [
        *(finding for name, engine in ENGINES.items() for finding in of_engine(engine, processes[name], sizes)),
        *of_stream(processes[ALONE], sizes),
    ]
    return Report("Allreduce between two processes", findings, processes)


def variants(sizes: Sequence[int]) -> list[Variant]:
    """Make the commands: the experiment on both frameworks, and the stream by itself in both directions."""
    asked = ("--sizes", ",".join(map(str, sizes)), "--device-kind", "cpu", "--threads", 1)
    return [
        *(
            Variant(name, launched("--processes", 2, "--", "run", "allreduce", "--backend", name, *asked))
            for name in ENGINES
        ),
        Variant(ALONE, worker("tcp_stream", sizes=sizes)),
    ]


def of_engine(engine: str, measured: Sequence[Measured], sizes: Sequence[int]) -> list[Finding]:
    """List how fast an engine sums, and its share of the stream's speed."""
    findings = []
    for size in sizes:
        words = write_size(size)
        native = [one.median(f"native, {words}") for one in measured]
        stream = [one.median(f"one TCP stream, {words}") for one in measured]
        share = median_interval([bound / taken for bound, taken in zip(stream, native, strict=True)])
        findings += [
            Finding(f"{words}: {engine}", scaled(median_interval(native), 1e6), "μs"),
            Finding(f"{words}: {engine}: algbw", speed(size, native), "GB/s"),
            Finding(f"{words}: {engine}: share of the stream's speed", scaled(share, 100), "%"),
        ]
    return findings


def of_stream(measured: Sequence[Measured], sizes: Sequence[int]) -> list[Finding]:
    """List how fast the stream by itself carries bytes in each direction, and the latency of few."""
    ways = {"there": "stream there", "back": "stream back"}
    latency = median_interval([one.median(f"stream there and back, {sizes[0]} B") / 2 for one in measured])
    return [
        Finding(f"{write_size(sizes[0])}: one TCP stream: half of there and back", scaled(latency, 1e6), "μs"),
        *(
            Finding(
                f"{write_size(size)}: one TCP stream, {way}",
                speed(size, [one.median(f"{case}, {size} B") for one in measured]),
                "GB/s",
            )
            for size in sizes
            for way, case in ways.items()
        ),
    ]


def speed(size: int, seconds: Sequence[float]) -> Interval:
    """Return the GB/s at which `size` bytes went, by process."""
    return median_interval([algorithm_bandwidth(size, one) for one in seconds])


if __name__ == "__main__":
    main()
