"""What a person sees of a sweep: a row for each point, a column for each curve."""

from rich import box
from rich.markup import escape
from rich.table import Table

from parallel_core.formatting import quantity
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, labelled, write_point

__all__ = ["curves_table"]


def curves_table(result: Result, curves: Curves) -> Table:
    """Make the table of a result's curves."""
    found = labelled(result.series, curves.quantity)
    made = Table(title=curves.y_title, title_justify="left", title_style="dim", box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column(escape(curves.x_title), justify="right")
    for label in found:
        made.add_column(escape(label or curves.y_title), justify="right", overflow="fold")
    for place, value in enumerate(result.series[curves.over]):
        made.add_row(
            write_point(value, curves.over), *(quantity(curves.quantity, values[place]) for values in found.values())
        )
    return made
