"""The picture of a result: its task graph, its learning curve, the curves of its sweep, or the
times of its cases.
"""

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import labelled
from parallel_core.report.plots.bars import Bar, BarsChart
from parallel_core.report.plots.curves import Curve, exact, learning_chart, sweep_chart
from parallel_core.report.plots.svg import Chart, titled
from parallel_core.report.plots.task_graph import TaskGraph
from parallel_core.system.formatting import framework_in_words, seconds


def result_picture(result: Result) -> bytes:
    """Return the picture of a result, under its answer, experiment, backend and data."""
    backend = result.backend
    side = framework_in_words(backend)
    if result.tasks:
        return titled(TaskGraph(result.tasks), f"A training step, recorded on {side}")
    answer = "" if result.answer is None else result.answer.sentences[0]
    about = f"{result.experiment} on {side}, {', '.join(backend['devices'])}"
    return titled(_chart(result), answer, about, result.data or "")


def _chart(result: Result) -> Chart:
    """Return the chart of a training's losses, of a sweep, or else of the times of all cases."""
    if "loss" in result.series:
        return learning_chart([(Curve("", "c0", ()), result)])
    curves = EXPERIMENTS[result.experiment].curves
    if curves is None or curves.over not in result.series:
        return _case_times(result)
    values_of_curves = {}
    for label, series in labelled(result.series, curves.quantity).items():
        values_of_curves[label] = [exact(value) for value in series]
    return sweep_chart(curves, result.series[curves.over], {"": values_of_curves})


def _case_times(result: Result) -> BarsChart:
    """Return the chart of the times of all cases.

    A bar ends when all was done, and its darker part when control returned. The whisker goes from
    the fastest to the slowest round.
    """
    has_rounds = any(len(case.seconds) > 1 for case in result.cases)
    bars = []
    for case in result.cases:
        bounds = (min(case.seconds), max(case.seconds)) if has_rounds else None
        bar = Bar(case.name, seconds(case.median), 0, case.median, "compute hollow", bounds)
        bars.append(bar._replace(inner=case.dispatch_median))
    whiskers = "; whiskers: from the fastest to the slowest round" if has_rounds else ""
    title = f"pale: until all was done; dark: until control returned{whiskers}"
    return BarsChart(bars, title)
