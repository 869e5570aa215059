"""The curves of a sweep; bounds and predictions are grey and dotted."""

from matplotlib.figure import Figure

from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, labelled, write_point
from parallel_core.plots.fold_style__colours import COLOURS

__all__ = ["sweep"]

MOST_TICKS = 10
DOTTED = (":", "--", "-.")


def sweep(result: Result, curves: Curves) -> Figure:
    """Draw a result's curves."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    over = result.series[curves.over]
    found = labelled(result.series, curves.quantity)
    solid = [label for label in found if label not in curves.dotted]
    for label, values in found.items():
        if label in solid:
            axes.plot(
                over, values, marker="o", markersize=4, color=COLOURS[solid.index(label) % len(COLOURS)], label=label
            )
        else:
            axes.plot(
                over, values, color="grey", linestyle=DOTTED[curves.dotted.index(label) % len(DOTTED)], label=label
            )
    axes.set_xscale("log" if curves.log_x else "linear")
    axes.set_yscale("log" if curves.log_y else "linear")
    if curves.log_x:
        shown = over[:: 1 + (len(over) - 1) // MOST_TICKS]
        axes.set_xticks(shown, [write_point(value, curves.over) for value in shown])
        axes.set_xticks([], minor=True)
    axes.set(xlabel=curves.x_title, ylabel=curves.y_title)
    axes.grid(alpha=0.3)
    if len(found) > 1 or "" not in found:
        axes.legend(fontsize="small")
    return figure
