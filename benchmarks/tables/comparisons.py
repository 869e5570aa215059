"""What `compare` gave, and how often it is wrong about cells that are compared with themselves."""

from functools import cache
from pathlib import Path

from backends.registry import title
from benchmarks import self_test
from benchmarks.harness.findings import provenance, read_json, source_of
from benchmarks.harness.planted_faults import HEADINGS, counts
from benchmarks.harness.side_by_side import versions_and_kernels
from benchmarks.harness.targets import markdown_table
from parallel_core.comparison.analysis import Analysis, analyse
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.screen import screen_of
from parallel_core.comparison.storage import read_comparison
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.report.charts import dispatch_chart, layers_chart
from parallel_core.report.plots.svg import titled
from parallel_core.system.formatting import percent, seconds


def pictures(folder: Path) -> dict[str, str]:
    """Draw what the gallery shows of a comparison: SVG, by file name."""
    _, analysis = _analysed(folder.resolve())
    layers = (layers_chart(one) for one in analysis.experiments if one.experiment.name == "async")
    charts = {
        "control.svg": (
            dispatch_chart(analysis),
            "From when control returned until all was done, on a logarithmic scale",
        ),
        "layers.svg": (
            next(layers, None),
            "Adding 1 to a small array: the operation, and what is on top of it",
        ),
    }
    return {
        name: titled(chart, title).decode()
        for name, (chart, title) in charts.items()
        if chart is not None
    }


def comparison(folder: Path) -> str:
    """Give a row to each cell of a comparison, with its difference from the first one, and why."""
    measured, analysis = _analysed(folder.resolve())
    rows = []
    for experiment in analysis.experiments:
        described = experiment.experiment
        about = f"`{described.name}`: {experiment.case or described.case}, `{described.main.name}`"
        for cell in experiment.cells:
            row = [about, f"{title(cell.cell.backend)} {cell.cell.engine}"]
            about = ""
            if cell.time is None:
                rows.append([*row, "", "", f"{cell.state}: {cell.reason}", ""])
                continue
            value = "" if cell.metric is None else with_bounds(cell.metric)
            if book := cell.metrics.get(f"book_{described.main.name}"):
                value += f"; the book's way {with_bounds(book)}"
            told = (
                (cell.difference.in_words, cell.difference.reasons_in_words)
                if cell.difference
                else ("", "")
            )
            rows.append([*row, seconds(cell.time.estimate), value, *told])
    headings = ["experiment: case, figure", "cell", "time", "figure", "against the first", "why"]
    return "\n".join([markdown_table(headings, rows), _source(folder, measured)])


def comparison_answer(folder: Path) -> str:
    """Give the table of questions by frameworks."""
    measured, analysis = _analysed(folder.resolve())
    screen = screen_of(analysis)
    # A narrow cell keeps `1.98 of 2` in one line.
    rows = [
        [question, *(figure.replace(" ", "\N{NO-BREAK SPACE}") for figure in figures)]
        for question, figures in screen.rows
    ]
    headings = ["", *(column.title for column in screen.columns)]
    return "\n".join([markdown_table(headings, rows), _source(folder, measured)])


@cache
def _analysed(folder: Path) -> tuple[Comparison, Analysis]:
    measured = read_comparison(folder)
    return measured, analyse(measured)


def _source(folder: Path, measured: Comparison) -> str:
    """Say where a comparison comes from; what its first result of each framework says holds for
    all.
    """
    backends = {
        results.cell.backend: results.valid[0].backend
        for results in measured.cells
        if results.valid
    }
    machine = {**measured.machine, "utc": measured.utc}
    place = provenance({"machine": machine, **versions_and_kernels(backends.values())})
    return (
        f"\n[All of it]({folder / 'comparison.json'}): {measured.command}, {measured.rounds} "
        f"rounds. {place}."
    )


def wrong_verdicts(folder: Path) -> str:
    """Give a row to each kind of cells that were compared with themselves, the real ones
    together.
    """
    written = read_json(folder / "self-test.json")
    shown = [one for one in written["rates"] if not one["name"].startswith("real")]
    if real := [
        one for one in written["rates"] if one["name"].startswith("real") and one["compared"]
    ]:
        counted = [
            name for name in self_test.HEADINGS if all(one.get(name) is not None for one in real)
        ]
        sums = {name: sum(one[name] for one in real) for name in ("compared", *counted)}
        shown.append(
            {"name": "real, both frameworks and engines", "rounds": real[0]["rounds"], **sums}
        )
    table = self_test.table_of(shown, lambda count, of: percent(count / of))
    return "\n".join([table, source_of(folder, {"self-test.json": written})])


def interval_coverage(folder: Path) -> str:
    """Give a row to each number of processes, with how often the interval of a single cell holds
    the true median.
    """
    name = "self-test.json"
    written = read_json(folder / name)
    return "\n".join(
        [self_test.coverage_table(written["coverage"]), source_of(folder, {name: written})]
    )


def planted_faults(folder: Path, over: str) -> str:
    """Give a row to each fault that was planted in a framework, with how often its part was
    named.
    """
    name = f"planted-faults-{over}.json"
    written = read_json(folder / name)
    return "\n".join(
        [markdown_table(HEADINGS, counts(written)), source_of(folder, {name: written})]
    )
