"""Whether two programs do the same, so that their steps can be compared.

Programs are alike if a median step computes the same: of each name as many operators. Exchanges and
copies may differ, for what is changed is often those.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from parallel_core.system.formatting import figure, listed, percent
from parallel_core.traces.figures import Ratio, Share, ratio
from parallel_core.traces.profile.recorded_steps import NOT_DONE, Side
from parallel_core.traces.profile.requirements import Unanswered

MOST_UNMATCHED = 0.25
"""If operators that the other program lacks take more of the time in which a step computes, the two
are not compared.
"""
MAX_NAMES = 3


@dataclass(frozen=True)
class Unmatched:
    """What a step of one side computes and the other does not."""

    side: str
    lacking_side: str
    operators: Ratio
    share: Share
    """Of the time in which the step's operators compute."""
    names: tuple[str, ...]
    """Those that take longest first."""

    @property
    def in_words(self) -> str:
        """What the one program computes that the other lacks, as a clause."""
        names = ", ".join(self.names[:MAX_NAMES])
        return (
            f"{self.side} computes {figure(self.operators)} operators a step that "
            f"{self.lacking_side} lacks ({names}: {percent(self.share)} of its computing)"
        )


def most_unmatched(before: Side, after: Side) -> Unmatched:
    """Return what a step of one side computes and the other's does not; the larger of the two."""
    both = (_unmatched(before, after), _unmatched(after, before))
    return max(both, key=lambda unmatched: unmatched.share)


def _unmatched(side: Side, other: Side) -> Unmatched:
    """Return what a step of a side computes of which the other side's has fewer."""
    operators = 0.0
    seconds_of: dict[str, float] = {}
    whole = 0.0
    for operation, done in side.operations.items():
        if operation.kind != "compute":
            continue
        whole += done.time.seconds
        surplus = done.number - other.operations.get(operation, NOT_DONE).number
        if surplus > 0:
            operators += surplus
            seconds_of[operation.name] = surplus / done.number * done.time.seconds
    longest_first = sorted(seconds_of, key=lambda name: -seconds_of[name])
    share = ratio(sum(seconds_of.values()), whole) or 0.0
    return Unmatched(side.name, other.name, operators, share, tuple(longest_first))


def hindrances(before: Side, after: Side, unmatched: Unmatched) -> Iterator[Unanswered]:
    """Yield why the steps of two sides cannot be compared, the first reason first."""
    for side in (before, after):
        fewest_steps = min(len(recording.steps) for recording in side.recordings)
        if fewest_steps == 0:
            yield Unanswered("step", "no-steps", f"{side.name} marks no steps")
        elif fewest_steps == side.number_of_recordings == 1:
            yield Unanswered("step", "single-step", f"{side.name} has a single step")
    recordings = (*before.recordings, *after.recordings)
    processes = sorted({recording.processes for recording in recordings})
    if len(processes) > 1:
        counts = listed([str(count) for count in processes])
        yield Unanswered("step", "other-processes", f"they have {counts} processes")
    if unmatched.share > MOST_UNMATCHED:
        yield Unanswered("step", "other-operators", unmatched.in_words)
