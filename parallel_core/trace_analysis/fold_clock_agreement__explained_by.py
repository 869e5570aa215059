"""Why a share by the trace differs from the saving by the clock, as far as the trace tells."""

from collections.abc import Sequence

from backends.profiling import Kind
from parallel_core.formatting import figure, listed, percent
from parallel_core.measurement.timing import LEAST_NOISE
from parallel_core.trace_analysis.figures import CaseFigures

__all__ = ["stretches", "why"]

WORDS: dict[Kind, str] = {"compute": "computations", "copy": "copies", "exchange": "exchanges"}


def stretches(together: CaseFigures, parts: Sequence[CaseFigures]) -> dict[Kind, float]:
    """Return how many times as long an operation of each kind took together as in the parts, on average."""
    found: dict[Kind, float] = {}
    for kind in WORDS:
        alone = [row for part in parts for row in part.kinds if row.kind == kind]
        seconds, mean = sum(row.spans * row.mean_seconds for row in alone), together.mean_of(kind)
        if seconds and mean is not None:
            found[kind] = mean / (seconds / sum(row.spans for row in alone))
    return found


def why(together: CaseFigures, parts: Sequence[CaseFigures], trace_is_more: bool) -> str:
    """Say in a sentence what made the saving less than the overlap (`trace_is_more`), or more than it.

    Operations that slow each other down overlap and save nothing; idle time, of all or of the parts, is in no overlap.
    """
    reasons = []
    for kind, factor in stretches(together, parts).items():
        if trace_is_more and factor > 1 + LEAST_NOISE:
            reasons.append(f"{WORDS[kind]} took {figure(factor)} × as long as alone")
        elif not trace_is_more and factor < 1 - LEAST_NOISE:
            reasons.append(f"{WORDS[kind]} took only {figure(factor)} × as long as alone")
    if trace_is_more and together.idle_share > LEAST_NOISE:
        reasons.append(f"no operation ran in {percent(together.idle_share)} of the time together")
    elif not trace_is_more:
        reasons += [
            f"alone, no operation ran in {percent(part.idle_share)} of the time of “{part.case}”"
            for part in parts
            if part.idle_share > LEAST_NOISE
        ]
    if not reasons:
        return "The trace does not tell why: the operations took as long as alone, with few gaps between them."
    said = listed(reasons)
    return f"{said[0].upper()}{said[1:]}."
