"""Does it save time to exchange gradients while the backward pass goes on?

python -m benchmarks.exchange
"""

from itertools import product
from typing import Any

from benchmarks.findings import Finding, Report, benchmark
from benchmarks.side_by_side import Variant, paired, scaled, take_turns, worker
from parallel_core.comparison.interval import median_interval

BACKENDS = ("mxnet", "torch")
# Width, batch, steps: a wider network has more parameters for the computation that hides their exchange.
CELLS = ((1, 256, 8), (1, 32, 40), (4, 256, 2), (4, 32, 8))
QUICK_CELLS = ((1, 32, 4), (4, 32, 1))


@benchmark("exchange", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Time a step with gradients exchanged after the backward pass and during it."""
    cells = list(product(BACKENDS, QUICK_CELLS if quick else CELLS))
    variants = [Variant(name_of(*cell), command(*cell, turns=1 if quick else 2)) for cell in cells]
    processes = take_turns(variants, rounds)
    findings = []
    for name, measured in processes.items():
        for exchange in ("after", "during"):
            step = median_interval([one.median(exchange) for one in measured])
            findings.append(Finding(f"{name}: a step, exchange {exchange}", scaled(step, 1e3), "ms"))
        findings.append(Finding(f"{name}: during / after", paired(measured, "during", "after")))
        for figure in ("buckets", "buckets_reduced_early"):
            counted = median_interval([one.figures[figure] for one in measured])
            findings.append(Finding(f"{name}: {figure}", counted, ""))
    return Report("Gradient exchange after or during the backward pass", findings, processes)


def name_of(backend: str, cell: tuple[int, int, int]) -> str:
    """Name a variant."""
    return f"{backend}, width {cell[0]}, batch {cell[1]}"


def command(backend: str, cell: tuple[int, int, int], turns: int) -> tuple[str, ...]:
    """Make a variant's command."""
    width, batch_size, steps = cell
    arguments: dict[str, Any] = {"width": width, "batch_size": batch_size, "steps": steps, "turns": turns}
    return worker("exchange", backend=backend, **arguments)


if __name__ == "__main__":
    main()
