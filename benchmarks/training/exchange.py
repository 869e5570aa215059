"""Does it save time to exchange gradients while the backward pass goes on?

python -m benchmarks.training.exchange
"""

from collections.abc import Sequence
from statistics import median

from benchmarks.harness.findings import Finding, Report, benchmark
from benchmarks.harness.side_by_side import Measured, Variant, paired, scaled, take_turns, worker
from parallel_core.measurement.confidence_intervals import Interval, median_interval

BACKENDS = ("mxnet", "torch")
# Width, batch, steps: a wider network has more parameters for the computation that hides their exchange.
CELLS = ((1, 32, 30), (4, 256, 2), (4, 32, 6))
QUICK_CELLS = ((1, 32, 4), (4, 32, 1))


@benchmark("training/exchange", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Time a step with gradients exchanged after the backward pass and during it."""
    cells = QUICK_CELLS if quick else CELLS
    variants = [Variant(name, worker("exchange", backend=name, cells=cells, epochs=2)) for name in BACKENDS]
    processes = take_turns(variants, rounds)
    findings = [
        finding
        for name, measured in processes.items()
        for width, batch_size, _ in cells
        for finding in of_cell(name, f"width {width}, batch {batch_size}", measured)
    ]
    return Report("Gradient exchange after or during the backward pass", findings, processes)


def of_cell(backend: str, cell: str, measured: Sequence[Measured]) -> list[Finding]:
    """List the figures of one framework for one width and batch."""
    steps = {
        exchange: median_interval([one.median(f"{cell}, {exchange}") for one in measured])
        for exchange in ("after", "during")
    }
    counts = {
        words: whole_range([one.figures[f"{cell}, {figure}"] for one in measured])
        for words, figure in (("buckets", "buckets"), ("buckets reduced early", "buckets_reduced_early"))
    }
    return [
        Finding(f"{backend}, {cell}: during / after", paired(measured, f"{cell}, during", f"{cell}, after")),
        *(Finding(f"{backend}, {cell}: a step, {name}", scaled(step, 1e3), "ms") for name, step in steps.items()),
        *(Finding(f"{backend}, {cell}: {name}", counted, "") for name, counted in counts.items()),
    ]


def whole_range(counts: Sequence[float]) -> Interval:
    """Return the median of some counts, with the smallest and the largest: there is no interval about a count."""
    return Interval(median(counts), min(counts), max(counts))


if __name__ == "__main__":
    main()
