"""Allreduce between two processes of this machine, by gloo and by dist_sync, against one loopback
TCP stream.

Each process has a core and a device. The stream carries each vector once, one way, and is timed in
turns with the sums, by the same processes. dist_sync has a server too, a third process.
"""

from collections.abc import Iterator, Sequence
from operator import truediv

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    medians_of,
    parallel_core,
    take_turns,
)
from benchmarks.harness.targets import Finding, by_round, scaled
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.system.formatting import write_size

SIZES = (4096, 65_536, 1_000_000, 10_000_000, 100_000_000)
QUICK_SIZES = (4096, 1_000_000)
TRANSPORTS = {"torch": "gloo", "mxnet": "dist_sync"}
STREAM = "one TCP stream"


def measure(request: Request) -> Iterator[Report]:
    """Time sums and the stream at each size, by both transports."""
    sizes = QUICK_SIZES if request.quick else SIZES
    same = ("--sizes", ",".join(map(str, sizes)), "--device-kind", "cpu", "--threads", 1)
    variants = []
    for backend in TRANSPORTS:
        run = ("run", "allreduce", "--backend", backend, *same)
        command = parallel_core("launch", "--processes", 2, "--", *run)
        variants.append(Variant(backend, command))
    processes = take_turns(variants, request.rounds)
    findings = []
    for backend, transport in TRANSPORTS.items():
        for size in sizes:
            findings += findings_of(transport, size, processes[backend])
    yield Report(findings, processes)


def findings_of(transport: str, size: int, measured: Sequence[Measured]) -> list[Finding]:
    """List how long a transport takes to sum vectors of a size, and its share of the stream's
    speed.
    """
    words = write_size(size)
    sums = medians_of(measured, f"native, {words}")
    stream = medians_of(measured, f"{STREAM}, {words}")
    share = scaled(by_round(truediv, stream, sums), 100)
    name = f"{words}: {transport}"
    return [
        Finding(name, scaled(median_interval(sums), 1e6), "μs"),
        Finding(f"{name}: share of the stream's speed", share, "%"),
    ]


MEASUREMENT = Measurement(
    file="processes",
    title="Allreduce between two processes",
    question="How fast do two processes sum vectors, beside one TCP stream between them?",
    method=Method(1, "2026-11-22", "the stream is timed in turns with the sums"),
    measure=measure,
)
