"""The picture of a result: its task graph, its learning curve, the curves of its sweep, or the times of its cases."""

from textwrap import fill

from matplotlib.figure import Figure

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, labelled
from parallel_core.plots.style import COLOURS, curve_styles, curve_ticks
from parallel_core.plots.task_graph import task_graph
from parallel_core.system.formatting import engine_in_words

__all__ = ["result_figure"]

LINE_CHARACTERS = 32
"""Of a case's name."""
TITLE_CHARACTERS = 84
LINE_STYLES = {"solid": "-", "dot": ":", "dash": "--", "dashdot": "-."}


def result_figure(result: Result) -> Figure:
    """Draw what a result is about, titled by its answer; below that its experiment, backend and data."""
    backend = result.backend
    side = f"{backend['name']} {backend['version']}, {engine_in_words(backend)}"
    if result.tasks:
        return task_graph(result.tasks, f"{result.parameters['of']}, recorded on {side}")
    curves = EXPERIMENTS[result.experiment].curves
    if "loss" in result.series:
        drawn = _learning_curve(result)
    elif curves is not None and curves.over in result.series:
        drawn = _sweep_figure(result, curves)
    else:
        drawn = _case_times(result)
    answer = "" if result.answer is None else fill(result.answer.sentences[0], TITLE_CHARACTERS)
    titles = (answer, f"{result.experiment} on {side}, {', '.join(backend['devices'])}", result.data)
    drawn.suptitle("\n".join(filter(None, titles)), fontsize="medium")
    return drawn


def _case_times(result: Result) -> Figure:
    """Draw a bar for each case until all was done, and in it, darker, until control returned.

    The first case is on top. The whisker goes from the fastest to the slowest repetition.
    """
    cases = result.cases
    done = [case.median for case in cases]
    whiskers = [
        [case.median - min(case.seconds) for case in cases],
        [max(case.seconds) - case.median for case in cases],
    ]
    figure = Figure(figsize=(7, 1.4 + 0.35 * len(cases)), layout="constrained")
    axes = figure.subplots()
    rows = range(len(cases))
    axes.barh(rows, done, xerr=whiskers, color=COLOURS[5], ecolor="grey", height=0.7, label="until all was done")
    dispatched = [case.dispatch_median for case in cases]
    axes.barh(rows, dispatched, color=COLOURS[0], height=0.35, label="until control returned")
    axes.set_yticks(rows, [fill(case.name, LINE_CHARACTERS) for case in cases])
    axes.invert_yaxis()
    several = any(len(case.seconds) > 1 for case in cases)
    axes.set(xlabel="seconds (whiskers: from the fastest to the slowest round)" if several else "seconds")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    return figure


def _learning_curve(result: Result) -> Figure:
    losses, accuracies = result.series["loss"], result.series["test_accuracy"]
    steps = len(losses) / len(accuracies)
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    batch_ends = [(step + 1) / steps for step in range(len(losses))]
    (loss,) = left.plot(batch_ends, losses, color="tab:blue", linewidth=0.8, label="training loss")
    left.set(xlabel="epoch", ylabel="loss per image", ylim=(0, 1.05 * max(losses)), xlim=(0, len(accuracies)))
    right = left.twinx()
    epochs = range(1, len(accuracies) + 1)
    (accuracy,) = right.plot(epochs, accuracies, color="tab:orange", marker="o", label="test accuracy")
    right.set(ylabel="accuracy", ylim=(0, 1))
    left.legend(handles=[loss, accuracy], loc="center right")
    return figure


def _sweep_figure(result: Result, curves: Curves) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    points = result.series[curves.over]
    values_by_label = labelled(result.series, curves.quantity)
    for label, (colour, dash) in curve_styles(values_by_label, curves).items():
        (line,) = axes.plot(points, values_by_label[label], LINE_STYLES[dash], color=colour, label=label)
        line.set(marker="o" if dash == "solid" else "", markersize=4)
    axes.set_xscale("log" if curves.log_x else "linear")
    axes.set_yscale("log" if curves.log_y else "linear")
    if curves.log_x:
        ticks = curve_ticks(points, curves)
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.set_xticks([], minor=True)
    axes.set(xlabel=curves.x_title, ylabel=curves.y_title)
    axes.grid(alpha=0.3)
    if len(values_by_label) > 1 or "" not in values_by_label:
        axes.legend(fontsize="small")
    return figure
