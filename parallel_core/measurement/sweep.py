"""The curves in a result's series: a quantity over another one, a curve for each label.

A result holds the series `OVER`, and for each curve the series `QUANTITY LABEL` or `QUANTITY`, all
of one length.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from parallel_core.system.formatting import figure, write_size


@dataclass(frozen=True)
class Curves:
    """The curves of a result: their series, and the names and scales of their axes."""

    over: str
    quantity: str
    x_title: str
    y_title: str
    log_x: bool = True
    log_y: bool = False
    dotted: tuple[str, ...] = ()
    """Labels of curves that are bounds or predictions rather than measurements in question."""
    in_place_of_times: bool = True
    """Whether they replace the table and chart of all cases' times, which would have dozens of
    rows.
    """
    caption: str = ""
    """What a reader must know to read them, in a sentence or two."""


def labelled(
    series: Mapping[str, tuple[float, ...]], quantity: str
) -> dict[str, tuple[float, ...]]:
    """Return a quantity's series by label; a series without a label has the empty one."""
    return {
        name.removeprefix(quantity).strip(): values
        for name, values in series.items()
        if name == quantity or name.startswith(f"{quantity} ")
    }


def write_point(value: float, over: str) -> str:
    """Write a point of a sweep over the series `over`; bytes are written as sizes."""
    return write_size(int(value)) if over == "bytes" else figure(value)
