"""What a profiler's trace shows of how efficient a case was, in one sentence for the answer of its lab."""

from parallel_core.system.formatting import figure, percent
from parallel_core.trace_analysis.figures import CaseFigures

__all__ = ["about_efficiency"]


def about_efficiency(case: CaseFigures) -> str:
    """Say how many devices worked at once, what was hidden, and when nothing ran; empty if nothing was recorded.

    Of a case that the profiler slowed down only that is said.
    """
    if case.devices_at_once is None:
        return ""
    if case.slowed_in_words:
        return f"The trace of “{case.case}” says nothing of its efficiency; it was {case.slowed_in_words}."
    hidden = (
        ""
        if case.hidden_of_shorter is None
        else f", {percent(case.hidden_of_shorter)} of the shorter of computing and communicating was hidden"
    )
    return (
        f"By the trace of “{case.case}” {figure(case.devices_at_once)} of {len(case.devices)} devices worked at the "
        f"same time, on average{hidden}, and nothing ran for {percent(case.idle_share)} of the time."
    )
