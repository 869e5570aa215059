"""What `compare` gave, and how often it names a fault that was planted."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from backends.registry import title
from backends.registry.variants import framework_of
from benchmarks.harness.results import read_json
from benchmarks.harness.targets import markdown_table
from benchmarks.tables.sources import measured_on, source_of
from benchmarks.trust.planted_faults import counts
from parallel_core.compare.analysis import Analysis, analyse
from parallel_core.compare.answer_table import screen_of
from parallel_core.compare.results import Comparison
from parallel_core.compare.storage import read_comparison
from parallel_core.report.charts import dispatch_chart, layers_chart
from parallel_core.report.plots.svg import titled

PICTURE_WIDTH = 520.0
"""Letters of a picture of this width can be read on a telephone."""
CONTROL = "How much of a piece of work's time had passed when Python continued"
LAYERS = "Adding 1 to a small array, and what comes on top"


def pictures(folder: Path) -> dict[str, str]:
    """Draw what the gallery shows of a comparison: SVG, by file name."""
    _, analysis = _analysed(folder.resolve())
    charts = {"control.svg": (dispatch_chart(analysis), CONTROL)}
    for experiment in analysis.experiments:
        if experiment.experiment.name == "async":
            charts["layers.svg"] = (layers_chart(experiment), LAYERS)
    drawn = {}
    for name, (chart, caption) in charts.items():
        if chart is not None:
            narrow = replace(chart, width=PICTURE_WIDTH)
            drawn[name] = titled(narrow, caption, width=PICTURE_WIDTH).decode()
    return drawn


def comparison_answer(folder: Path) -> str:
    """Give the table of questions by frameworks; what they are without queues shares a column."""
    comparison, analysis = _analysed(folder.resolve())
    screen = screen_of(analysis)
    controls = [column.is_control for column in screen.columns]
    headings = [""]
    headings += [column.title for column in screen.columns if not column.is_control]
    rows = []
    for question, figures in screen.rows:
        row, without_queues = [question], []
        for figure, is_control in zip(figures, controls, strict=True):
            if is_control:
                without_queues.append(figure)
            else:
                # A narrow cell keeps `1.98 of 2` in one line.
                row.append(figure.replace(" ", "\N{NO-BREAK SPACE}"))
        rows.append([*row, _side_by_side(without_queues)])
    table = markdown_table([*headings, "without queues, in the same order"], rows)
    return "\n".join([table, _source(folder, comparison)])


def _side_by_side(figures: Sequence[str]) -> str:
    """Write figures of one question as one, with their unit once: `1.01 / 1 / 0.99 of 2`."""
    split = [figure.partition(" ") for figure in figures]
    units = {unit for _, _, unit in split}
    if len(set(figures)) == 1 or len(units) > 1:
        return " / ".join(dict.fromkeys(figures))
    numbers = " / ".join(number for number, _, _ in split)
    return f"{numbers} {units.pop()}".strip()


@cache
def _analysed(folder: Path) -> tuple[Comparison, Analysis]:
    comparison = read_comparison(folder)
    return comparison, analyse(comparison)


def _source(folder: Path, comparison: Comparison) -> str:
    """Say where a comparison comes from, and in how many processes a cell it was measured."""
    versions = {}
    for results in comparison.cells:
        if results.valid:
            framework = framework_of(results.cell.backend)
            versions[framework] = results.valid[0].backend["version"]
    frameworks = ", ".join(f"{title(name)} {version}" for name, version in versions.items())
    path = folder / "comparison.json"
    machine = measured_on(path, {"machine": {**comparison.machine, "utc": comparison.utc}})
    return (
        f"\nMeasured on {machine}, in {comparison.rounds} processes a cell, with {frameworks}: "
        f"[comparison]({path})."
    )


def planted_faults(folder: Path) -> str:
    """Give a row to each fault that was planted in MXNet and in PyTorch, with how often its part
    was named first, on the quiet machine and beside spinning processes.
    """
    headings = ["planted", "its part"]
    columns: list[tuple[int, Sequence[Sequence[str]]]] = []
    documents = {}
    for backend in ("mxnet", "torch"):
        file = f"planted-faults-{backend}.json"
        documents[file] = read_json(folder / file)
        for spinners, trials in sorted(documents[file]["trials"].items()):
            if int(spinners):
                headings.append(f"beside {spinners} spinning")
            else:
                headings += [f"named first, {title(backend)}", "size / planted"]
            columns.append((int(spinners), counts(trials)))
    rows = []
    for number, (what, part, *_) in enumerate(columns[0][1]):
        row = [what, part]
        for spinners, of_faults in columns:
            _, _, named_first, _, size = of_faults[number]
            row += [named_first] if spinners else [named_first, size]
        rows.append(row)
    return "\n".join([markdown_table(headings, rows), source_of(folder, documents)])
