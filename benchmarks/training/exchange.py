"""Does it save time to exchange gradients while the backward pass goes on?

python -m benchmarks.training.exchange
"""

from itertools import product
from statistics import median

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    ratio_of_turns,
    refuse_disagreement,
    take_turns,
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


@benchmark("training/exchange", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Time a step with gradients exchanged after the backward pass and during it."""
    findings: list[Finding] = []
    processes: dict[str, list[Measured]] = {}
    for name, (width, batch, steps) in product(BACKENDS, QUICK_CELLS if quick else CELLS):
        cell = f"{name}, width {width}, batch {batch}"
        same = {
            "backend": name,
            "devices": 2,
            "batch_size": batch,
            "images": steps * batch,
            "width": width,
        }
        variants = [
            Variant(f"{cell}, {one}", worker("training", **same, exchange=one)) for one in EXCHANGES
        ]
        measured = take_turns(variants, rounds, 1 if quick else TURNS)
        refuse_disagreement(measured, "loss")
        after, during = measured.values()
        findings.append(Finding(f"{cell}: during / after", ratio_of_turns(median, during, after)))
        for exchange, some in zip(EXCHANGES, (after, during), strict=True):
            step = median_interval([one.median("epoch") / steps for one in some])
            findings.append(Finding(f"{cell}: a step, {exchange}", scaled(step, 1e3), "ms"))
        for figure in ("buckets", "buckets_reduced_early"):
            counts = [one.figures[figure] for one in during]
            # There is no interval about a count: its smallest and largest stand there.
            of_counts = Interval(median(counts), min(counts), max(counts))
            findings.append(Finding(f"{cell}: {figure.replace('_', ' ')}", of_counts, ""))
        processes |= measured
    return Report("Gradient exchange after or during the backward pass", findings, processes)


if __name__ == "__main__":
    main()
