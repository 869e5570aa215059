"""How numbers are written, in the terminal and in the report alike."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from parallel_core.measurement.confidence_intervals import Interval

__all__ = ["engine_in_words", "figure", "listed", "percent", "quantity", "with_bounds"]


def figure(value: float) -> str:
    """Write a number in three digits, a large one in full."""
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}").replace("-", "−")


def percent(share: float, sign: Literal["", "+"] = "") -> str:
    """Write a share in whole percent, with its sign always or only where it is negative; 0% never has a minus."""
    # Adding zero turns a negative zero, which rounding may give, into a plain one.
    return f"{round(share, 2) + 0.0:{sign}.0%}".replace("-", "−")


def with_bounds(interval: Interval) -> str:
    """Write an estimate with its bounds: `0.87 (0.85–0.90)`; a negative bound is set apart by dots.

    An interval without ends is left out.
    """
    if not math.isfinite(interval.high):
        return figure(interval.estimate)
    largest = max(abs(interval.low), abs(interval.high))
    digits = 0 if largest >= 1000 else 2 if largest >= 0.02 else 4
    # Adding zero turns a negative zero, which rounding may give, into a plain one.
    estimate, low, high = (
        f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")
        for value in (interval.estimate, interval.low, interval.high)
    )
    return f"{estimate} ({low}{' … ' if '−' in low + high else '–'}{high})"


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does: a, b and c."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def engine_in_words(backend: Mapping[str, Any]) -> str:
    """Write the engine of a result's backend, with what is not its default: `async engine with bulk-on`."""
    variants = backend.get("variants", ())
    return f"{backend['engine']} engine" + (f" with {listed(variants)}" if variants else "")


def quantity(name: str, value: float) -> str:
    """Write a metric in the unit that its name tells."""
    # The others are also used where NumPy is all there is.
    from humanize import metric, naturalsize

    if name == "seconds" or name.endswith("_seconds") or name.startswith("seconds_"):
        return metric(value, "s")
    if "bytes" in name:
        return naturalsize(value)
    return figure(value)
