"""A sweep in the terminal: a row for each point, a column for each curve."""

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, labelled, write_point
from parallel_core.system.formatting import figure, percent, quantity, write_size
from parallel_core.terminal.console import ASIDE

__all__ = ["bandwidths", "curves_table"]


def curves_table(result: Result, curves: Curves) -> Table:
    """Return the table of a result's curves."""
    values_by_label = labelled(result.series, curves.quantity)
    table = Table(title=curves.y_title, title_style=ASIDE)
    table.add_column(escape(curves.x_title), justify="right")
    for label in values_by_label:
        table.add_column(escape(label or curves.y_title), justify="right")
    for place, value in enumerate(result.series[curves.over]):
        table.add_row(
            write_point(value, curves.over),
            *(quantity(curves.quantity, values[place]) for values in values_by_label.values()),
        )
    return table


BOUNDS = {"share_of_copy_bound": "the plain copies'", "share_of_stream_bound": "the TCP stream's"}
"""What the shares of a series are shares of."""


def bandwidths(result: Result) -> Table:
    """Return the table of algorithm bandwidths, with their shares of the bound if the result has them.

    The fastest algorithm of each size is in bold.
    """
    speeds = labelled(result.series, "algbw_gb_per_s")
    bound, shares = next((words, some) for name, words in BOUNDS.items() if (some := labelled(result.series, name)))
    table = Table(
        title=f"GB/s of each device's vector, and the share of {bound} speed",
        title_style=ASIDE,
    )
    table.add_column("size", justify="right", no_wrap=True)
    for name in speeds:
        table.add_column(escape(name), justify="right")
    for row, size in enumerate(result.series["bytes"]):
        fastest = max(shares, key=lambda name: speeds[name][row])
        cells = []
        for name, values in speeds.items():
            share = f" {percent(shares[name][row]):>5}" if name in shares else ""
            cells.append(Text(_speed(values[row]) + share, style="bold" if name == fastest else ""))
        table.add_row(write_size(int(size)), *cells)
    return table


def _speed(gigabytes: float) -> str:
    """Write GB/s in five characters, so that a table of them fits into a terminal; very low ones take more."""
    if gigabytes < 0.001:
        return figure(gigabytes)
    return f"{gigabytes:.{max(0, 4 - len(f'{gigabytes:.0f}'))}f}"
