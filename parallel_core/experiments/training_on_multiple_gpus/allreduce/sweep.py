"""Time one size after the other, as far as a budget of seconds lasts."""

from collections.abc import Callable, Mapping, Sequence

from parallel_core.measurement.progress import part
from parallel_core.measurement.result import Case
from parallel_core.system.formatting import write_size

__all__ = ["about_budget", "sweep"]

TimeSize = Callable[[int, float], tuple[float, Mapping[str, Case]]]
"""(size, seconds that it may take) -> (the largest error of the sums, the cases by name)."""


def sweep(
    sizes: Sequence[int], in_full: bool, time_size: TimeSize, left: Callable[[], float]
) -> tuple[list[float], dict[int, Mapping[str, Case]]]:
    """Time sizes in ascending order; return their errors and cases. `left` tells how many seconds of the budget are.

    Unless all are wanted, `in_full`, the sweep ends before a size that would take more than is left, judging by the
    size before it. A size may take half of what is left, so that larger ones are reached.
    """
    errors: list[float] = []
    timed: dict[int, Mapping[str, Case]] = {}
    before, took = left(), 0.0
    for place, size in enumerate(sizes):
        if timed and not in_full and took * size / max(timed) > before:
            break
        with part(place / len(sizes), (place + 1) / len(sizes)):
            error, timed[size] = time_size(size, before / 2)
        errors.append(error)
        now = left()
        before, took = now, before - now
    return errors, timed


def about_budget(sizes: Sequence[int], timed: Mapping[int, Mapping[str, Case]], budget: float) -> tuple[str, ...]:
    """Say that the sweep ended early, if it did."""
    if len(timed) == len(sizes):
        return ()
    ended = f"The budget of {budget:g} s ended the sweep at {write_size(max(timed))} of {write_size(max(sizes))}"
    return (f"{ended} (--budget gives more, --sizes chooses others).",)
