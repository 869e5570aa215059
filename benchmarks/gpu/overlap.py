"""How much of the copying to the host is hidden under the computing, in our way and in the book's."""

from benchmarks.gpu.parts import PartResult, Place
from benchmarks.harness.targets import Finding, Target
from parallel_core.experiments import EXPERIMENTS

SHOWN = {
    "overlap_efficiency": ("overlap_efficiency", Target("at least", 0.9)),
    "book_overlap_efficiency": ("overlap_efficiency of the book's version", None),
}
SIZES = {"gpu": {"size": 2048}, "cpu": {"size": 32, "copies": 1}}
"""On a GPU a product then takes about as long as copying it, and all page-locked buffers together take 4 GB."""


def measure(place: Place) -> PartResult:
    """Run the experiment `overlap`, and take its figures."""
    result = EXPERIMENTS["overlap"].run(place.load(), rounds=place.rounds, **SIZES[place.kind])
    findings = [
        Finding(f"{place.framework}: {words}", interval, "", target)
        for name, (words, target) in SHOWN.items()
        if (interval := result.interval(name)) is not None
    ]
    return PartResult(tuple(findings), (result.explanation,), result.problems, (), result.parameters, result.cases)
