"""The times of a result's cases: a bar until all was done, and in it, darker, until control returned."""

from textwrap import fill

from matplotlib.figure import Figure

from parallel_core.measurement.result import Result
from parallel_core.plots.fold_style__colours import COLOURS

__all__ = ["cases"]

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
