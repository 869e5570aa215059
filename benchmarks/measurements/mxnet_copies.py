"""When MXNet's CPU devices copy beside multiplications, with its own scratch memory and with ours.

MXNet's CPU devices share pieces of scratch memory: 4 as shipped, 256 as parallel-core loads it. In
plain MXNet a copy of an array that is ready is queued behind 40 multiplications on its device, and
the book's cell multiplies and copies to the host. Then `overlap` does the same our way and the
book's way, with both settings.
"""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    parallel_core,
    take_turns,
    values_of,
    worker,
)
from benchmarks.harness.targets import Finding, scaled
from parallel_core.measurement.confidence_intervals import median_interval

SETTINGS: Mapping[int, str] = {4: "temporary-space-low", 256: "temporary-space-high"}
"""The variant of `overlap` by the number of pieces."""
COPIES: Mapping[int, int] = {600: 4, 800: 5, 1000: 7}
"""How often the book's cell copies each result, by the size of the matrices, so that both parts
take equally long.
"""
QUICK_COPIES: Mapping[int, int] = {100: 2}
WAYS: Mapping[str, str] = {
    "ours": "overlap_efficiency",
    "the book's way": "book_overlap_efficiency",
}


def measure(request: Request) -> Iterator[Report]:
    """Run plain MXNet and `overlap` with each setting, in processes that take turns."""
    copies = QUICK_COPIES if request.quick else COPIES
    variants = []
    for pieces, variant in SETTINGS.items():
        plain = worker(
            "mxnet_copies",
            scratch=pieces,
            sizes=list(copies),
            copies=list(copies.values()),
            repetitions=2 if request.quick else 5,
        )
        variants.append(Variant(f"plain, {pieces} pieces", plain))
        options = ("--backend", "mxnet", "--variant", variant)
        options += ("--rounds", "1" if request.quick else "3")
        for size in copies:
            command = parallel_core("run", "overlap", *options, "--size", size)
            variants.append(Variant(f"overlap of {size}, {pieces} pieces", command))
    processes = take_turns(variants, request.rounds)
    findings = []
    for size in copies:
        for pieces in SETTINGS:
            plain_processes = processes[f"plain, {pieces} pieces"]
            overlaps = processes[f"overlap of {size}, {pieces} pieces"]
            findings += findings_of(size, pieces, plain_processes, overlaps)
    yield Report(findings, processes)


def findings_of(
    size: int, pieces: int, plain: Sequence[Measured], overlaps: Sequence[Measured]
) -> list[Finding]:
    """List when a ready array was copied, and what was hidden by the book's cell and `overlap`."""
    name = f"{size} × {size}, {pieces} pieces"
    done_after = median_interval(values_of(plain, f"{size}: copy done after"))
    hidden = median_interval(values_of(plain, f"{size}: book's cell"))
    findings = [
        Finding(f"{name}: a ready array's copy is done after", scaled(done_after, 100), "%"),
        Finding(f"{name}: the book's cell hides", hidden, ""),
    ]
    for way, figure in WAYS.items():
        hidden = median_interval(values_of(overlaps, figure))
        findings.append(Finding(f"{name}: `overlap`, {way}, hides", hidden, ""))
    return findings


MEASUREMENT = Measurement(
    file="experiments/mxnet-copies",
    title="MXNet's copies",
    question="When does MXNet copy beside multiplications, with its scratch memory and with ours?",
    method=Method(1, "2026-11-28", "one process for each setting, which MXNet reads at import"),
    measure=measure,
    rounds=5,
)
