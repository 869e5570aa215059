"""What the numbers of the `batch-norm` experiment mean, in sentences that follow from them."""

import math
from collections.abc import Sequence

from backends import Backend
from parallel_core.experiments.changes import LESS_NOISE
from parallel_core.measurement.confidence_intervals import decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import times_as_long
from parallel_core.system.formatting import figure

__all__ = ["about_cost", "about_exchange", "about_growth", "compared", "verdict", "what_would_change"]

ROUNDING = 1e-5
"""A difference below it is called rounding; the frameworks compare float64, but may round a rate to float32."""


def verdict(synchronised: float, per_device: float, rows: int) -> str:
    """Say which statistics give the step of one device, by the changes' relative differences at so many rows each."""
    return (
        f"With {rows} rows a device, a step by statistics of the global batch {compared(synchronised)}; "
        f"one by those of each device's rows {compared(per_device)}."
    )


def compared(difference: float) -> str:
    """Say how a step compares with that of one device."""
    if difference < ROUNDING:
        return f"equals one device's to rounding ({difference:.0e} of the largest change)"
    return f"differs from one device's by {_percent(difference)} of the largest change"


def about_growth(rows: Sequence[int], differences: Sequence[float]) -> str:
    """Say how the difference of the statistics per device depends on the rows per device."""
    first, last = differences[0], differences[-1]
    sentence = f"{_percent(first)} at {rows[0]} rows a device and {_percent(last)} at {rows[-1]}"
    if len(rows) < 2 or not min(first, last) > ROUNDING:
        return f"Statistics of each device's rows make a step differ by {_percent(last)} at {rows[-1]} rows a device."
    power = math.log(last / first) / math.log(rows[-1] / rows[0])
    law = f"it changes as rows to the power {figure(power)}, where means over independent rows vary with the power −0.5"
    return f"Statistics of each device's rows make a step differ by {sentence}: {law}."


def about_cost(per_device: Case, synchronised: Case, rows: int) -> str:
    """Say what synchronising costs."""
    ratio = times_as_long(synchronised, per_device)
    told = f"took {with_bounds(ratio)} × as long as without"
    sentence = f"With {rows} rows a device, a step with synchronised statistics {told}"
    match decide(ratio, 1.0):
        case 0:
            return f"{sentence}, although it does more."
        case 1:
            return f"{sentence}, {figure(1e3 * (synchronised.median - per_device.median))} ms more."
    return f"{sentence}: no difference is shown."


def about_exchange(allreduces: int, moved: int) -> str:
    """Say what synchronising adds to a step's exchange."""
    return f"Synchronising adds {allreduces} allreduces and {moved:,} bytes between devices to a step."


def what_would_change(backend: Backend, per_device: Case, synchronised: Case, rows: int) -> str:
    """Say what would bring both steps nearer to each other, in what they change and in what they take."""
    if decide(times_as_long(synchronised, per_device), 1.0) is None:
        return LESS_NOISE
    more = f"More rows a device (--rows {4 * rows}): its own mean and variance are nearer to those of the global batch"
    if backend.engine == "sync":
        return f"{more}, and operations weigh less beside them."
    return f"{more}, and waiting for the other devices weighs less beside computing."


def _percent(share: float) -> str:
    """Write a share in percent, with two digits."""
    return f"{100 * share:.2g}%" if share < 1 else f"{100 * share:.0f}%"
