"""Reports for tests: every kind of chart, with differences and timelines, and names that try to be markup."""

from dataclasses import replace

from backends.profiling import Timeline
from parallel_core import RequestError
from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.report.page import render
from tests.parallel_core.comparison.made_up import NASTY, every_chart
from tests.parallel_core.report.plots.frameworks import mxnet_async, torch_async, torch_sync
from tests.parallel_core.trace_analysis.synthetic import parallel_timeline

__all__ = ["TIMELINES", "full_page", "page_of", "timeline_of", "with_bare_times"]

TIMELINES = {"mxnet async": mxnet_async(50), "torch async": torch_async(50), "torch sync": torch_sync(50)}
COMPUTING = {"mxnet": 0.5, "torch": 0.25}
"""The share of a case's time that its bare operations take."""


def timeline_of(cell: Cell) -> Timeline:
    """Return a cell's timeline; MXNet's synchronous engine has none. That of `parallel` can be divided."""
    if cell.side not in TIMELINES:
        raise RequestError(NASTY)
    return parallel_timeline() if cell.experiment == "parallel" else TIMELINES[cell.side]


def with_bare_times(one: CellResults, share: float | None = None) -> CellResults:
    """Give all cases of a cell bare times: a share of its times."""
    share = share or COMPUTING.get(one.cell.backend, 1.0)
    results = (
        replace(
            result,
            cases=tuple(
                replace(case, bare_seconds=tuple(share * seconds for seconds in case.seconds)) for case in result.cases
            ),
        )
        for result in one.results
    )
    return replace(one, results=tuple(results))


def page_of(compared: Comparison) -> str:
    """Return the report of a comparison without traces."""
    return render(analyse(compared))


def full_page() -> str:
    """Return the report with everything that a report can hold; `allreduce` has no bare times."""
    compared = every_chart()
    cells = (one if one.cell.experiment == "allreduce" else with_bare_times(one) for one in compared.cells)
    return render(analyse(replace(compared, cells=tuple(cells))), timeline_of)
