"""How much of the copying is hidden under the computing, in our experiment and in the book's version of it.

python -m benchmarks.experiments.overlap
"""

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import Variant, parallel_core, take_turns
from benchmarks.harness.targets import Finding, Target
from parallel_core.measurement.confidence_intervals import median_interval

SHOWN = {
    "overlap_efficiency": ("", Target("at least", 0.85)),
    "book_overlap_efficiency": (" of the book's version", None),
}


@benchmark("experiments/overlap", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Measure `overlap_efficiency` in fresh processes, on both frameworks."""
    own = ("--rounds", 2 if quick else 3)
    names = ("mxnet", "torch")
    processes = take_turns([Variant(n, parallel_core("run", "overlap", "--backend", n, *own)) for n in names], rounds)
    findings = []
    for name, measured in processes.items():
        for figure, (whose, target) in SHOWN.items():
            found = median_interval([one.figures[figure] for one in measured])
            findings.append(Finding(f"{name}: overlap_efficiency{whose}", found, "", target))
    return Report("Overlap of computing and copying", findings, processes)


if __name__ == "__main__":
    main()
