"""The times of a result's cases: a bar until all was done, and in it, darker, until control returned."""

from textwrap import fill

from matplotlib.figure import Figure

from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, labelled, write_point
from parallel_core.plots.style import COLOURS

__all__ = ["cases", "learning_curve", "sweep"]


WIDEST = 32
"""Characters of a case's name on one line."""


def cases(result: Result) -> Figure:
    """Draw a result's cases, the first one on top; the whisker goes from the fastest to the slowest repetition."""
    names = [fill(case.name, WIDEST) for case in result.cases]
    done = [case.median for case in result.cases]
    whiskers = [
        [case.median - min(case.seconds) for case in result.cases],
        [max(case.seconds) - case.median for case in result.cases],
    ]
    figure = Figure(figsize=(7, 1.4 + 0.35 * len(names)), layout="constrained")
    axes = figure.subplots()
    places = range(len(names))
    axes.barh(places, done, xerr=whiskers, color=COLOURS[5], ecolor="grey", height=0.7, label="until all was done")
    dispatched = [case.dispatch_median for case in result.cases]
    axes.barh(places, dispatched, color=COLOURS[0], height=0.35, label="until control returned")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set(xlabel="seconds")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    return figure


def learning_curve(result: Result) -> Figure:
    """Draw a result that has losses and accuracies."""
    losses, accuracies = result.series["loss"], result.series["test_accuracy"]
    per_epoch = len(losses) / len(accuracies)
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    (loss,) = left.plot(
        [(step + 1) / per_epoch for step in range(len(losses))],
        losses,
        color="tab:blue",
        linewidth=0.8,
        label="training loss",
    )
    left.set(xlabel="epoch", ylabel="loss per image", ylim=(0, 1.05 * max(losses)), xlim=(0, len(accuracies)))
    right = left.twinx()
    (accuracy,) = right.plot(
        range(1, len(accuracies) + 1), accuracies, color="tab:orange", marker="o", label="test accuracy"
    )
    right.set(ylabel="accuracy", ylim=(0, 1))
    left.legend(handles=[loss, accuracy], loc="center right")
    return figure


MAX_TICKS = 10


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
        shown = over[:: 1 + (len(over) - 1) // MAX_TICKS]
        axes.set_xticks(shown, [write_point(value, curves.over) for value in shown])
        axes.set_xticks([], minor=True)
    axes.set(xlabel=curves.x_title, ylabel=curves.y_title)
    axes.grid(alpha=0.3)
    if len(found) > 1 or "" not in found:
        axes.legend(fontsize="small")
    return figure
