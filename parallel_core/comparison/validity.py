"""Whether a cell's times can be believed, and when they are unstable in pyperf's terms."""

from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import Literal

from parallel_core.comparison.cells import CellResults
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.declaration import shown_case
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.measurement.verdicts import MIN_NOISE
from parallel_core.system.formatting import percent, seconds

CellState = Literal["measured", "invalid", "failed", "not run"]

# The limits of `python -m pyperf check`.
MAX_DEVIATION = 0.10
MAX_OUTLIER_DISTANCE = 0.50
MIN_SECONDS = 1e-3


def assess(results: CellResults) -> tuple[CellState, str]:
    """Return whether a cell can be believed, and what was wrong with it or with some of its
    processes.
    """
    problems = [problem for result in results.results for problem in result.problems]
    reasons = [failure.reason for failure in results.failures]
    for impossible in impossible_cases(results):
        return "invalid", impossible
    if problems and 2 * len(results.valid) <= len(results.results):
        # The few valid results are selected by their own outcome.
        return (
            "invalid",
            f"{len(results.valid)} of {len(results.results)} runs are valid: {problems[0]}",
        )
    if not results.valid:
        return (
            ("failed", reasons[0])
            if reasons
            else ("not run", "the comparison was interrupted before")
        )
    if not main_case(results):
        return "failed", "its results have no case"
    remarks = [
        f"{len(some)} {kind}: {some[0]}"
        for kind, some in (("invalid", problems), ("failed", reasons))
        if some
    ]
    return "measured", "; ".join(remarks)


def main_case(*cells: CellResults) -> str:
    """Return the case that cells are compared by: the usual one if any has it, else one that all
    have, or none.
    """
    first, usual = cells[0], EXPERIMENTS[cells[0].cell.experiment].case
    if any(results.medians(usual) for results in cells):
        return usual
    return shown_case(
        [name for name in first.case_names if all(results.medians(name) for results in cells)],
        usual,
    )


def impossible_cases(results: CellResults) -> Iterator[str]:
    """Name a cell's cases that were faster, over all processes, than the slowest part that they
    contain.
    """
    for case in results.valid[0].cases if results.valid else ():
        parts = [medians for name in case.parts if (medians := results.medians(name))]
        if parts:
            slowest = max(parts, key=lambda medians: sorted(medians)[len(medians) // 2])
            whole = results.medians(case.name)
            shares = [time / part for time, part in zip(whole, slowest, strict=True)]
            ratio = median_interval(shares)
            if ratio.high < 1 and ratio.estimate < 1 - MIN_NOISE:
                yield (
                    f"{case.name!r} took {percent(ratio.estimate)} of the time of its slowest part"
                )


def unstable_cases(results: CellResults) -> Iterator[str]:
    """Name a cell's unstable cases, each with its reasons."""
    for name in results.case_names:
        every = [
            (seconds, case.repeats) for case in results.cases(name) for seconds in case.seconds
        ]
        reasons = ", ".join(
            instabilities([one for one, _ in every], [one * repeats for one, repeats in every])
        )
        if reasons:
            yield f"{name}: {reasons}"


def doubtful_units(results: CellResults) -> Iterator[str]:
    """Name a cell's cases that were faster than their operations by themselves: their bare times
    are too long.
    """
    for name in results.case_names:
        bare = results.medians(name, "bare_seconds")
        shares = [alone / whole for alone, whole in zip(bare, results.medians(name), strict=False)]
        if shares and (found := median_interval(shares)).low > 1 + MIN_NOISE:
            more = f"as one unit its operations took {found.estimate:.2f} × its time"
            yield f"{name}: {more}, so no reasons are given"


def instabilities(values: Sequence[float], timings: Sequence[float]) -> Iterator[str]:
    """Iterate over the warnings of `pyperf check` for some times in seconds, all of a case's from
    all processes.

    `timings` are the measured times, of which each may be of several repeats that were timed
    together.
    """
    average = mean(values)
    if len(values) >= 2 and stdev(values) >= MAX_DEVIATION * average:
        yield f"the standard deviation is {percent(stdev(values) / average)} of the mean"
    for name, value in (("minimum", min(values)), ("maximum", max(values))):
        if abs(value - average) >= MAX_OUTLIER_DISTANCE * average:
            yield f"the {name} is {percent(abs(value / average - 1))} off the mean"
    shortest = min(timings)
    if shortest < MIN_SECONDS:
        yield f"the shortest time is only {seconds(shortest)}"
