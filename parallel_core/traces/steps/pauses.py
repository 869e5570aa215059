"""The time in which nothing ran, where the median step hides it, such as between epochs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backends.profiling import Window, in_seconds
from parallel_core.system.formatting import percent, seconds
from parallel_core.traces.case_spans import CaseSpans, gaps, total_length
from parallel_core.traces.figures import Seconds, Share

LEAST_PAUSE = 0.1
"""By how much the share of a recording in which nothing ran exceeds the median step's, if it is
said; and the least share in which a program without steps recorded nothing.
"""


@dataclass(frozen=True)
class Pause:
    """The time of a recording in which nothing ran, where the median step shows little of it."""

    share: Share
    """Of the recording."""
    step_share: Share
    """Of the median step."""
    longest_seconds: Seconds
    after: str
    """The step in which the longest stretch without any operation begins."""
    before: str
    """The step in which that ends; the same if it lies in one."""

    @property
    def in_words(self) -> str:
        """What it is, and where it is longest."""
        where = f"in {self.after}"
        if self.after != self.before:
            where = f"between {self.after} and {self.before}"
        return (
            f"nothing ran in {percent(self.share)} of the recording, and in "
            f"{percent(self.step_share)} of the median step: longest {where}, for "
            f"{seconds(self.longest_seconds)}"
        )


def pause_of(case: CaseSpans, steps: Sequence[Window], step_share: float) -> Pause | None:
    """Return the time in which nothing ran if the median step, idle for a share, hides it."""
    # A recording may begin before its first step and end after its last one.
    start, end = max(case.start, steps[0].start), case.end
    idle = gaps(case.covered(case.operations), start, end)
    share = total_length(idle) / max(end - start, 1)
    if share - step_share < LEAST_PAUSE or len(idle) == 0:
        return None
    longest = idle[np.argmax(idle[:, 1] - idle[:, 0])]
    begins = [step.start for step in steps]
    first, last = np.searchsorted(begins, longest, side="right") - 1
    return Pause(
        share,
        step_share,
        in_seconds(longest[1] - longest[0]),
        steps[max(first, 0)].name,
        steps[max(last, 0)].name,
    )
