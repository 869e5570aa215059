"""The report's chart of an experiment's timelines: a panel for each cell."""

from statistics import median

from parallel_core.comparison.analysis import ExperimentAnalysis
from parallel_core.comparison.screen import title_of
from parallel_core.comparison.storage import TimelineOf
from parallel_core.errors import RequestError
from parallel_core.plots.timeline import Panel, TimelinesChart
from parallel_core.system.formatting import seconds
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import few_lanes, overlap_phrases
from parallel_core.trace_analysis.profiling_run import shown_case

MAX_BLOCKS = 1200
"""In all panels of an experiment: each block takes about 200 bytes of the page."""
MAX_BLOCKS_OF_PAGE = 6000


def timelines_of(
    experiment: ExperimentAnalysis, timeline_of: TimelineOf, experiments: int = 1
) -> tuple[TimelinesChart | None, dict[str, str]]:
    """Return the timelines of an experiment's cells, if there are any, and for each cell without one the reason.

    `experiments` is the number of those that share the page.
    """
    panels: list[Panel] = []
    without: dict[str, str] = {}
    max_blocks = min(MAX_BLOCKS, MAX_BLOCKS_OF_PAGE // experiments)
    usual = experiment.experiment.case
    for analysed in experiment.believed:
        side = analysed.cell.side
        try:
            timeline = timeline_of(analysed.cell)
        except RequestError as error:
            without[side] = str(error)
            continue
        filled = {case.name: case for case in cases_of(timeline) if case.nanoseconds}
        if not filled:
            without[side] = "; ".join(timeline.notes) or "nothing in its trace took any time"
            continue
        case = filled[shown_case(list(filled), usual)]
        lanes = few_lanes(case, max_blocks // len(experiment.believed))
        took = seconds(lanes.seconds) + ("" if case.name == usual else f" of “{case.name}”")
        # The same case by the clock, without a profiler.
        timed = [same.again_seconds for same in analysed.results.cases(case.name)]
        took += f" (timed: {seconds(median(timed))})" if timed else ""
        remarks = ", ".join((took, *overlap_phrases(figures_of(case))))
        panels.append(Panel(title_of(analysed.results.valid[0].backend), remarks, lanes))
    return TimelinesChart(panels) if panels else None, without
