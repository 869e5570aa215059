"""Allreduce between two processes of this machine, by gloo and by dist_sync, against one loopback
TCP stream.

    python -m benchmarks.processes

Each process has a core and a device. algbw is bytes of one process's vector / time. The stream
carries each vector once, one way, and is timed in turns with the sums, by the same processes.
dist_sync has a server too, a third process.
"""

from collections.abc import Sequence
from functools import partial
from operator import truediv

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import Measured, Variant, parallel_core, take_turns
from benchmarks.harness.targets import Finding, by_round, scaled
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidths import (
    algorithm_bandwidth,
)
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.system.formatting import write_size

SIZES = (4096, 65_536, 1_000_000, 10_000_000, 100_000_000)
QUICK_SIZES = (4096, 1_000_000)
TRANSPORTS = {"torch": "gloo", "mxnet": "dist_sync"}
STREAM = "one TCP stream"


@benchmark("processes", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Hold allreduce between two processes against one TCP stream, from 4 KiB to 100 MB."""
    sizes = QUICK_SIZES if quick else SIZES
    asked = ("--sizes", ",".join(map(str, sizes)), "--device-kind", "cpu", "--threads", 1)
    commands = {
        name: parallel_core(
            "launch", "--processes", 2, "--", "run", "allreduce", "--backend", name, *asked
        )
        for name in TRANSPORTS
    }
    processes = take_turns([Variant(*one) for one in commands.items()], rounds)
    findings = [
        finding
        for name, transport in TRANSPORTS.items()
        for finding in of_sums(transport, processes[name], sizes)
    ]
    return Report("Allreduce between two processes", findings, processes)


def of_sums(transport: str, measured: Sequence[Measured], sizes: Sequence[int]) -> list[Finding]:
    """List how fast a transport sums and the stream carries, and the share of the stream's
    speed.
    """
    findings = []
    for size in sizes:
        words, bandwidth = write_size(size), partial(algorithm_bandwidth, size)
        native, stream = (
            [one.median(f"{case}, {words}") for one in measured] for case in ("native", STREAM)
        )
        findings += [
            Finding(f"{words}: {transport}", scaled(median_interval(native), 1e6), "μs"),
            Finding(f"{words}: {transport}: algbw", by_round(bandwidth, native), "GB/s"),
            Finding(f"{words}: {transport}: {STREAM}", by_round(bandwidth, stream), "GB/s"),
            Finding(
                f"{words}: {transport}: share of the stream's speed",
                scaled(by_round(truediv, stream, native), 100),
                "%",
            ),
        ]
    return findings


if __name__ == "__main__":
    main()
