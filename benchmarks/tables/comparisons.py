"""What `compare` gave, and how often it names a fault that was planted."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from backends.registry import title
from backends.registry.variants import framework_of
from benchmarks.harness.findings import measured_on, read_json, source_of
from benchmarks.harness.planted_faults import counts
from benchmarks.harness.targets import markdown_table
from parallel_core.comparison.analysis import Analysis, analyse
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.screen import screen_of
from parallel_core.comparison.storage import read_comparison
from parallel_core.report.charts import dispatch_chart, layers_chart
from parallel_core.report.plots.svg import titled

PICTURE_WIDTH = 520.0
"""Letters of a picture of this width can be read on a telephone."""


def pictures(folder: Path) -> dict[str, str]:
    """Draw what the gallery shows of a comparison: SVG, by file name."""
    _, analysis = _analysed(folder.resolve())
    layers = (layers_chart(one) for one in analysis.experiments if one.experiment.name == "async")
    charts = {
        "control.svg": (
            dispatch_chart(analysis),
            "How much of a piece of work's time had passed when Python continued",
        ),
        "layers.svg": (
            next(layers, None),
            "Adding 1 to a small array, and what comes on top",
        ),
    }
    return {
        name: titled(replace(chart, width=PICTURE_WIDTH), title, width=PICTURE_WIDTH).decode()
        for name, (chart, title) in charts.items()
        if chart is not None
    }


def comparison_answer(folder: Path) -> str:
    """Give the table of questions by frameworks; what they are without queues shares a column."""
    measured, analysis = _analysed(folder.resolve())
    screen = screen_of(analysis)
    queued = [place for place, column in enumerate(screen.columns) if not column.is_control]
    controls = [place for place, column in enumerate(screen.columns) if column.is_control]
    rows = [
        [
            question,
            # A narrow cell keeps `1.98 of 2` in one line.
            *(figures[place].replace(" ", "\N{NO-BREAK SPACE}") for place in queued),
            _side_by_side([figures[place] for place in controls]),
        ]
        for question, figures in screen.rows
    ]
    headings = ["", *(screen.columns[place].title for place in queued), "the same without queues"]
    return "\n".join([markdown_table(headings, rows), _source(folder, measured)])


def _side_by_side(figures: Sequence[str]) -> str:
    """Write figures of one question as one, with their unit once: `1.01 / 1 / 0.99 of 2`."""
    numbers = [figure.partition(" ")[0] for figure in figures]
    units = {figure.partition(" ")[2] for figure in figures}
    if len({*figures}) == 1 or len(units) > 1:
        return " / ".join(dict.fromkeys(figures))
    return f"{' / '.join(numbers)} {units.pop()}".strip()


@cache
def _analysed(folder: Path) -> tuple[Comparison, Analysis]:
    measured = read_comparison(folder)
    return measured, analyse(measured)


def _source(folder: Path, measured: Comparison) -> str:
    """Say where a comparison comes from, and in how many processes a cell it was measured."""
    versions = {
        framework_of(results.cell.backend): results.valid[0].backend["version"]
        for results in measured.cells
        if results.valid
    }
    frameworks = ", ".join(f"{title(name)} {version}" for name, version in versions.items())
    place = measured_on({"machine": {**measured.machine, "utc": measured.utc}})
    return (
        f"\nMeasured on {place}, in {measured.rounds} processes a cell, with {frameworks}: "
        f"[comparison]({folder / 'comparison.json'})."
    )


def planted_faults(folder: Path) -> str:
    """Give a row to each fault that was planted in MXNet and in PyTorch, with how often its part
    was named.
    """
    files = {name: f"planted-faults-{name}.json" for name in ("mxnet", "torch")}
    written = {file: read_json(folder / file) for file in files.values()}
    rows = []
    for of_mxnet, of_torch in zip(*map(counts, written.values()), strict=True):
        what, part, *_ = of_mxnet
        named = (row[2].partition(" (")[0] for row in (of_mxnet, of_torch))
        rows.append([what, part, *named, of_mxnet[4], of_torch[4]])
    headings = ["planted", "its part", *(f"named first, {title(name)}" for name in files)]
    headings += [f"size / planted, {title(name)}" for name in files]
    return "\n".join([markdown_table(headings, rows), source_of(folder, written)])
