"""The report's page: an analysis and its charts in one self-contained file."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from humanize import naturalsize, precisedelta
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from backends.registry.variants import title_of_compared
from parallel_core.compare.analysis import Analysis, ExperimentAnalysis
from parallel_core.compare.answer_table import note_on_systematic_errors, screen_of
from parallel_core.compare.plan import FIRST
from parallel_core.compare.results import CellResults, Comparison
from parallel_core.compare.storage import TimelineOf
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import with_bounds, with_seconds
from parallel_core.measurement.result import Result
from parallel_core.report import charts, tables
from parallel_core.report.plots.svg import inline, style_sheet
from parallel_core.report.plots.task_graph import TaskGraph
from parallel_core.system.formatting import kernels_in_words, listed

FIRST_BATCHES = 20


def render(analysis: Analysis, timeline_of: TimelineOf | None = None) -> str:
    """Return the report as HTML; `timeline_of` reads the timelines of cells, if they were kept."""
    environment = Environment(
        loader=PackageLoader("parallel_core.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bounds": with_bounds, "listed": listed, "times": with_seconds}
    comparison = analysis.comparison
    sections = [_section(analysis, experiment, timeline_of) for experiment in analysis.experiments]
    key_sections = [section for section in sections if section["described"].key_timeline]
    key_sections.sort(key=lambda section: section["described"].key_timeline)
    return environment.get_template("page.html.jinja").render(
        comparison=comparison,
        took=precisedelta(comparison.seconds, minimum_unit="seconds", format="%d"),
        date=f"{datetime.fromisoformat(comparison.utc):%-d %B %Y, %H:%M} UTC",
        memory=naturalsize(comparison.machine["memory_bytes"]),
        rounds=_rounds(comparison),
        screen=screen_of(analysis),
        systematic_errors=note_on_systematic_errors(analysis),
        first_timelines=key_sections[0]["timelines"] if key_sections else None,
        cells=analysis.cells,
        experiments=sections,
        dispatch=inline(charts.dispatch_chart(analysis), "When Python continues"),
        environments=_environments(comparison),
        first_batches=FIRST_BATCHES,
        backends=[title_of_compared(name) for name in analysis.backends],
        catalogue=EXPERIMENTS,
        pictures_style=Markup(style_sheet()),
    )


def _rounds(comparison: Comparison) -> str:
    """Write the number of rounds, for example `5 rounds`.

    It is `3 of 5 rounds` if time was up, or the comparison was interrupted.
    """
    rounds_of_cells = []
    for cell in comparison.cells:
        failures = [failure for failure in cell.failures if failure.round >= FIRST]
        rounds_of_cells.append(len(cell.results) + len(failures))
    done = max(rounds_of_cells)
    noun = "rounds" if comparison.rounds > 1 else "round"
    planned = f"{comparison.rounds} {noun}"
    if done < comparison.rounds:
        return f"{done} of {planned}"
    return planned


def _section(
    analysis: Analysis, experiment: ExperimentAnalysis, timeline_of: TimelineOf | None
) -> dict[str, Any]:
    """Return the values of an experiment's section in the page's template."""
    described, believed = experiment.experiment, experiment.believed
    curves, curve_values = charts.curves_chart(experiment)
    times = tables.case_times_table(experiment)
    if curves is not None and described.curves is not None and described.curves.in_place_of_times:
        times = ()
    timelines, unprofiled = None, dict[str, str]()
    if timeline_of is not None:
        count = len(analysis.experiments)
        timelines, unprofiled = charts.timelines_chart(experiment, timeline_of, count)
    results = [of_cell.valid[0] for of_cell in charts.trained(experiment)]
    drawn = {
        "timelines": timelines,
        "curves": curves,
        "layers": charts.layers_chart(experiment),
        "learning": charts.learning_curves(analysis, experiment),
    }
    believed_results = [analysed.results for analysed in believed]
    by_framework = _first_results(believed_results, lambda results: results.cell.backend)
    kernels = {name: kernels_in_words(result.backend) for name, result in by_framework.items()}
    warnings = []
    for analysed in believed:
        warnings += [(analysed.results.title, warning) for warning in analysed.warnings]
    graphs = {}
    for name, result in by_framework.items():
        if result.tasks:
            label = f"The graph of tasks that {name} recorded"
            graphs[name] = inline(TaskGraph(result.tasks), label)
    return {
        "described": described,
        "case": experiment.case,
        "lessons": (*experiment.counted, experiment.answer),
        "remarks": [cell for cell in experiment.cells if cell.reason],
        "warnings": warnings,
        **{name: inline(chart, f"{described.name}: {name}") for name, chart in drawn.items()},
        "unprofiled": unprofiled,
        "kernels": {name: words for name, words in kernels.items() if words},
        "differences": tables.differences_table(experiment),
        "curve_values": curve_values,
        "times": times,
        "data": "; ".join(sorted({result.data for result in results if result.data})),
        "agreement_at_first": _max_loss_difference(results, FIRST_BATCHES),
        "agreement": _max_loss_difference(results),
        "graphs": graphs,
        "parameters": dict(believed[0].results.valid[0].parameters) if believed else {},
    }


def _first_results(
    cells: Iterable[CellResults], key: Callable[[CellResults], str]
) -> dict[str, Result]:
    """Return, for each key, the first result among the cells with that key."""
    results: dict[str, Result] = {}
    for cell_results in cells:
        if cell_results.valid:
            results.setdefault(key(cell_results), cell_results.valid[0])
    return results


def _max_loss_difference(results: list[Result], batches: int | None = None) -> float | None:
    """Return the largest difference between the losses of a batch, as a share of the larger loss.

    Only the first `batches` count, if they are given. None if there are fewer than two results.
    """
    losses = [result.series["loss"] for result in results]
    if len(losses) < 2:
        return None
    differences = []
    for losses_of_batch in list(zip(*losses, strict=False))[:batches]:
        smallest, largest = min(losses_of_batch), max(losses_of_batch)
        differences.append(1 - smallest / largest if largest else 0.0)
    return max(differences)


def _environments(comparison: Comparison) -> list[dict[str, str]]:
    """Return the rows of the table of environments, without columns that are empty everywhere."""
    first_results = _first_results(comparison.cells, lambda results: results.title)
    rows = [_environment(title, result) for title, result in first_results.items()]
    if not rows:
        return []
    used: set[str] = set()
    for row in rows:
        used.update(heading for heading, text in row.items() if text)
    # All rows have the same headings, in the same order.
    headings = [heading for heading in rows[0] if heading in used]
    return [{heading: row[heading] for heading in headings} for row in rows]


def _environment(title: str, result: Result) -> dict[str, str]:
    """Return a cell's row in the table of environments, by heading."""
    backend, environment = result.backend, result.environment
    cores_of_devices = [", ".join(map(str, cores)) for cores in backend["cores"]]
    settings = [f"{name}={value}" for name, value in backend["settings"].items() if value]
    return {
        "framework": title,
        "version": backend["version"],
        "Python": environment["python"],
        "NumPy": environment["numpy"],
        "parallel-core": environment["parallel_core"],
        "devices": ", ".join(backend["devices"]),
        "threads each": str(backend["threads_per_device"]),
        "cores of each": " | ".join(cores_of_devices),
        "matrix multiplication": kernels_in_words(backend),
        "who schedules": backend["scheduler"],
        "settings": ", ".join(settings),
        "variants": ", ".join(backend.get("variants", ())),
    }
