"""How much of the copying to the host is hidden under the computing, in our way and in the book's."""

from benchmarks.gpu.part import PartResult, Place, load_one
from benchmarks.gpu.timing import by_round, seconds_of
from benchmarks.harness.targets import Finding, Target
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.automatic_parallelism.overlap import BOOK_COPY, BOOK_TOGETHER, COPY, RUN, TOGETHER

__all__ = ["measure"]

CASES = (RUN, COPY, TOGETHER, BOOK_COPY, BOOK_TOGETHER)
TARGET = Target("at least", 0.9)
SIZES = {"gpu": {"size": 2048}, "cpu": {"size": 32, "copies": 1}}
"""On a GPU a product then takes about as long as copying it, and all page-locked buffers together take 4 GB."""


def measure(place: Place) -> PartResult:
    """Run the experiment `overlap`, and take its efficiency round by round."""
    result = EXPERIMENTS["overlap"].run(load_one(place), rounds=place.rounds, **SIZES[place.kind])
    cases = {case.name: case for case in result.cases}
    run_alone, copy_alone, together, book_copy, book_together = (
        cases[name] for name in (RUN, COPY, TOGETHER, BOOK_COPY, BOOK_TOGETHER)
    )
    ours = by_round(efficiency, run_alone, copy_alone, together)
    book = by_round(efficiency, run_alone, book_copy, book_together)
    return PartResult(
        findings=(
            Finding(f"{place.framework}: overlap_efficiency", ours, "", TARGET),
            Finding(f"{place.framework}: overlap_efficiency of the book's version", book, ""),
        ),
        notes=(result.explanation,),
        problems=result.problems,
        parameters=result.parameters,
        seconds=seconds_of(result.cases),
    )


def efficiency(run_alone: float, copy_alone: float, together: float) -> float:
    """Return the share of the shorter part that was hidden under the longer one, not clamped."""
    return (run_alone + copy_alone - together) / min(run_alone, copy_alone)
