"""The picture of a result: its task graph, its learning curve, the curves of its sweep, or the
times of its cases.
"""

from math import inf

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import labelled
from parallel_core.report.plots.bars import Bar, BarsChart
from parallel_core.report.plots.curves import Curve, exact, learning_chart, sweep_chart
from parallel_core.report.plots.svg import Chart, titled
from parallel_core.report.plots.task_graph import TaskGraph
from parallel_core.system.formatting import engine_in_words, seconds


def result_picture(result: Result) -> bytes:
    """Draw what a result is about, titled by its answer.

    Below that its experiment, backend and data.
    """
    backend = result.backend
    side = f"{backend['name']} {backend['version']}, {engine_in_words(backend)}"
    if result.tasks:
        return titled(TaskGraph(result.tasks), f"{result.parameters['of']}, recorded on {side}")
    answer = "" if result.answer is None else result.answer.sentences[0]
    about = f"{result.experiment} on {side}, {', '.join(backend['devices'])}"
    return titled(_chart(result), answer, about, result.data or "")


def _chart(result: Result) -> Chart:
    if "loss" in result.series:
        return learning_chart([(Curve("", "c0", ()), result)])
    curves = EXPERIMENTS[result.experiment].curves
    if curves is None or curves.over not in result.series:
        return _case_times(result)
    values = {
        label: [*map(exact, row)] for label, row in labelled(result.series, curves.quantity).items()
    }
    return sweep_chart(curves, result.series[curves.over], {"": values})


def _case_times(result: Result) -> BarsChart:
    """Draw a bar for each case until all was done, and in it, darker, until control returned.

    The whisker goes from the fastest to the slowest repetition.
    """
    several = any(len(case.seconds) > 1 for case in result.cases)
    bars = [
        Bar(
            case.name,
            seconds(case.median),
            0,
            case.median,
            "compute hollow",
            (min(case.seconds), max(case.seconds)) if several else None,
            case.dispatch_median,
        )
        for case in result.cases
    ]
    whiskers = "; whiskers: from the fastest to the slowest round" if several else ""
    title = f"pale: until all was done; dark: until control returned{whiskers}"
    return BarsChart({"": bars}, title=title, widest=inf)
