"""The report: one HTML file that needs no network, for people who prefer pictures."""

from pathlib import Path

from parallel_core.compare.analysis import Analysis
from parallel_core.compare.storage import REPORT, SUITES, saved_timelines
from parallel_core.system import files

__all__ = ["write_report"]


def write_report(analysis: Analysis, folder: Path) -> Path:
    """Write the page of an analysis, with the timelines of the folder's traces, and pyperf suites.

    Returns the page's path. Raises OSError.
    """
    # Jinja2 and pyperf take a tenth of a second to import, for which a refused request does not
    # wait.
    from parallel_core.report.page import render
    from parallel_core.report.pyperf_export import save_suites

    page = render(analysis, saved_timelines(folder)).encode(errors="replace")
    files.write_whole(folder / REPORT, lambda stream: stream.write(page))
    save_suites(analysis.comparison, folder / SUITES)
    return folder / REPORT
