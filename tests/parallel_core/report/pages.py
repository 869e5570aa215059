"""Reports for tests: every kind of chart, with differences and timelines, and names that try to be
markup.
"""

from dataclasses import replace
from html.parser import HTMLParser

from backends.profiling import Timeline
from parallel_core import RequestError
from parallel_core.compare.analysis import analyse
from parallel_core.compare.results import Cell, CellResults, Comparison
from parallel_core.report.page import render
from tests.parallel_core.compare.made_up import NASTY, every_chart, with_parts
from tests.parallel_core.report.plots.frameworks import mxnet_async, torch_async, torch_sync
from tests.parallel_core.traces.synthetic import parallel_timeline

__all__ = ["TIMELINES", "Parsed", "full_page", "page_of", "timeline_of", "with_bare_times"]

TIMELINES = {
    "mxnet async": mxnet_async(50),
    "torch async": torch_async(50),
    "torch sync": torch_sync(50),
}
COMPUTING = {"mxnet": 0.5, "torch": 0.25}
"""The share of a case's time that its bare operations take."""


def timeline_of(cell: Cell) -> Timeline:
    """Return a cell's timeline; MXNet's synchronous engine has none. That of `parallel` can be
    divided.
    """
    if cell.side not in TIMELINES:
        raise RequestError(NASTY)
    return parallel_timeline() if cell.experiment == "parallel" else TIMELINES[cell.side]


def with_bare_times(cell_results: CellResults) -> CellResults:
    """Give all cases of a cell bare times, by its framework."""
    bare_share = COMPUTING.get(cell_results.cell.backend, 1.0)
    return with_parts(cell_results, {"bare": bare_share})


def page_of(compared: Comparison) -> str:
    """Return the report of a comparison without traces."""
    return render(analyse(compared))


def full_page() -> str:
    """Return the report with everything that a report can hold; `allreduce` has no bare times."""
    compared = every_chart()
    cells = []
    for cell_results in compared.cells:
        has_bare_times = cell_results.cell.experiment != "allreduce"
        cells.append(with_bare_times(cell_results) if has_bare_times else cell_results)
    return render(analyse(replace(compared, cells=tuple(cells))), timeline_of)


class Parsed(HTMLParser):
    """A page's elements in order, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]

    @property
    def addresses(self) -> list[str]:
        """What the page loads and links to."""
        sources = [attributes.get("src") for _, attributes in self.elements]
        links = [attributes.get("href") for _, attributes in self.elements]
        return [address for address in (*sources, *links) if address]
