"""What a picture says of a case in few words: how much ran at once, how much communication lay under computation."""

from parallel_core.formatting import percent
from parallel_core.trace_analysis.figures import CaseFigures

__all__ = ["seen"]


def seen(case: CaseFigures) -> tuple[str, ...]:
    """Return `1.9 queues at once` and `87% of communication under computation`, those of them that can be said."""
    told = []
    if case.queues_at_once is not None:
        at_once = f"{case.queues_at_once:.1f}"
        told.append(f"{at_once} {'queue' if at_once == '1.0' else 'queues'} at once")
    # Without computation nothing could lie under it.
    if case.hidden_share is not None and case.compute_seconds:
        told.append(f"{percent(case.hidden_share)} of communication under computation")
    return tuple(told)
