"""When MXNet's CPU devices copy beside multiplications, with its own scratch memory and with ours.

    python -m benchmarks.experiments.mxnet_copies

MXNet's CPU devices share pieces of scratch memory: 4 as shipped, 256 as parallel-core loads it. In
plain MXNet a copy of an array that is ready is queued behind 40 multiplications on its device, and
the book's cell multiplies and copies to the host. Then `overlap` does the same our way and the
book's way, with both settings.
"""

from collections.abc import Mapping

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import Variant, parallel_core, take_turns, worker
from benchmarks.harness.targets import Finding
from parallel_core.measurement.confidence_intervals import median_interval

SETTINGS: Mapping[int, str] = {4: "temporary-space-low", 256: "temporary-space-high"}
"""The variant of `overlap` by the number of pieces."""
COPIES: Mapping[int, int] = {600: 4, 800: 5, 1000: 7}
"""How often the book's cell copies each result, by the size of the matrices, so that both parts
take equally long.
"""
OURS: Mapping[str, str] = {
    "ours": "overlap_efficiency",
    "the book's way": "book_overlap_efficiency",
}


@benchmark("experiments/mxnet-copies", rounds=5)
def main(rounds: int, quick: bool) -> Report:
    """Measure each program with each setting, in processes that take turns."""
    copies = {100: 2} if quick else COPIES
    variants = []
    for pieces, variant in SETTINGS.items():
        plain = worker(
            "mxnet_copies",
            scratch=pieces,
            sizes=list(copies),
            copies=list(copies.values()),
            repetitions=2 if quick else 5,
        )
        variants.append(Variant(f"plain, {pieces} pieces", plain))
        for size in copies:
            options = (
                "--backend",
                "mxnet",
                "--variant",
                variant,
                "--size",
                size,
                "--rounds",
                1 if quick else 3,
            )
            variants.append(
                Variant(
                    f"overlap of {size}, {pieces} pieces", parallel_core("run", "overlap", *options)
                )
            )
    processes = take_turns(variants, rounds)

    findings = []
    for size in copies:
        for pieces in SETTINGS:
            plain_processes = processes[f"plain, {pieces} pieces"]
            done_after = [
                100 * process.figures[f"{size}: copy done after"] for process in plain_processes
            ]
            hidden = [process.figures[f"{size}: book's cell"] for process in plain_processes]
            where = f"{size} × {size}, {pieces} pieces"
            findings.append(
                Finding(
                    f"{where}: a ready array's copy is done after", median_interval(done_after), "%"
                )
            )
            findings.append(Finding(f"{where}: the book's cell hides", median_interval(hidden), ""))
            for way, figure in OURS.items():
                shares = [
                    process.figures[figure]
                    for process in processes[f"overlap of {size}, {pieces} pieces"]
                ]
                findings.append(
                    Finding(f"{where}: `overlap`, {way}, hides", median_interval(shares), "")
                )
    return Report("MXNet's copies", findings, processes)


if __name__ == "__main__":
    main()
