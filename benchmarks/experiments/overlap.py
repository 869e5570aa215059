"""How much of the copying is hidden under the computing, in our experiment and in the book's version of it.

python -m benchmarks.experiments.overlap
"""

from benchmarks.harness.findings import Finding, Report, Target, benchmark
from benchmarks.harness.side_by_side import Variant, parallel_core, take_turns
from parallel_core.measurement.confidence_intervals import median_interval

BACKENDS = ("mxnet", "torch")
TARGET = Target("at least", 0.85)
BOOK = "book_overlap_efficiency"


@benchmark("experiments/overlap", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Measure `overlap_efficiency` in fresh processes, on both frameworks."""
    own = ("--rounds", 2 if quick else 3)
    variants = [Variant(name, parallel_core("run", "overlap", "--backend", name, *own)) for name in BACKENDS]
    processes = take_turns(variants, rounds)
    findings = []
    for name, measured in processes.items():
        ours = median_interval([one.figures["overlap_efficiency"] for one in measured])
        findings.append(Finding(f"{name}: overlap_efficiency", ours, "", TARGET))
        if all(BOOK in one.figures for one in measured):
            book = median_interval([one.figures[BOOK] for one in measured])
            findings.append(Finding(f"{name}: overlap_efficiency of the book's version", book, ""))
    return Report("Overlap of computing and copying", findings, processes)


if __name__ == "__main__":
    main()
