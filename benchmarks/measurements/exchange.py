"""Does it save time to exchange gradients while the backward pass goes on?"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    medians_of,
    ratio_of_turns,
    refuse_disagreement,
    take_turns,
    values_of,
    worker,
)
from benchmarks.harness.targets import Finding, scaled
from parallel_core.measurement.confidence_intervals import Interval, median_interval

BACKENDS = ("mxnet", "torch")
# Width, batch, steps: a wider network has more parameters for the computation that hides their
# exchange.
CELLS = ((1, 32, 30), (4, 256, 2), (4, 32, 6))
QUICK_CELLS = ((1, 32, 4), (4, 32, 1))
EXCHANGES = ("after", "during")
TURNS = 3


def measure(request: Request) -> Iterator[Report]:
    """Time a step with gradients exchanged after the backward pass and during it."""
    findings: list[Finding] = []
    processes: dict[str, list[Measured]] = {}
    for backend in BACKENDS:
        for width, batch, steps in QUICK_CELLS if request.quick else CELLS:
            cell = f"{backend}, width {width}, batch {batch}"
            amounts = {"batch_size": batch, "images": steps * batch, "width": width}
            variants = []
            for exchange in EXCHANGES:
                command = worker(
                    "training", backend=backend, devices=2, exchange=exchange, **amounts
                )
                variants.append(Variant(f"{cell}, {exchange}", command))
            measured = take_turns(variants, request.rounds, 1 if request.quick else TURNS)
            refuse_disagreement(measured, "loss")
            findings += findings_of(cell, steps, measured)
            processes |= measured
    yield Report(findings, processes)


def findings_of(cell: str, steps: int, measured: Mapping[str, Sequence[Measured]]) -> list[Finding]:
    """List the ratio of steps, the time of a step each way, and how many buckets were early."""
    during, after = measured[f"{cell}, during"], measured[f"{cell}, after"]
    findings = [Finding(f"{cell}: during / after", ratio_of_turns(median, during, after))]
    for exchange in EXCHANGES:
        epoch = median_interval(medians_of(measured[f"{cell}, {exchange}"], "epoch"))
        findings.append(Finding(f"{cell}: a step, {exchange}", scaled(epoch, 1e3 / steps), "ms"))
    for figure in ("buckets", "buckets_reduced_early"):
        counts = values_of(during, figure)
        # There is no interval about a count: its smallest and largest stand there.
        interval = Interval(median(counts), min(counts), max(counts))
        findings.append(Finding(f"{cell}: {figure.replace('_', ' ')}", interval, ""))
    return findings


MEASUREMENT = Measurement(
    file="training/exchange",
    title="Gradient exchange after or during the backward pass",
    question=__doc__,
    method=Method(1, "2026-11-21", "epochs in turns, ratios of the median turns of a round"),
    measure=measure,
)
