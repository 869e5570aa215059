"""The report's page: an analysis and its charts in one self-contained file."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from humanize import naturalsize, precisedelta
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from backends.registry.loading import title
from parallel_core.comparison.analysis import Analysis, ExperimentAnalysis
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.comparison.plan import FIRST
from parallel_core.comparison.screen import screen_of
from parallel_core.comparison.storage import TimelineOf
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import with_bounds, with_seconds
from parallel_core.measurement.result import Result
from parallel_core.report import charts
from parallel_core.report.plots.svg import inline, style_sheet
from parallel_core.report.plots.task_graph import TaskGraph
from parallel_core.system.formatting import kernels_in_words, listed

FIRST_BATCHES = 20


def render(analysis: Analysis, timeline_of: TimelineOf | None = None) -> str:
    """Return the report as HTML, with the cells' timelines if there is a way to read them."""
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
        first_timelines=key_sections[0]["timelines"] if key_sections else None,
        cells=analysis.cells,
        experiments=sections,
        dispatch=inline(charts.dispatch_chart(analysis), "When Python continues"),
        environments=_environments(comparison),
        first_batches=FIRST_BATCHES,
        backends=[title(name) for name in analysis.backends],
        catalogue=EXPERIMENTS,
        pictures_style=Markup(style_sheet()),
    )


def _rounds(comparison: Comparison) -> str:
    """Say how many rounds there were.

    They are fewer than were asked for if time was up, or if the comparison was interrupted.
    """
    rounds_of_cells = []
    for cell in comparison.cells:
        failures = [failure for failure in cell.failures if failure.round >= FIRST]
        rounds_of_cells.append(len(cell.results) + len(failures))
    done = max(rounds_of_cells)
    noun = "rounds" if comparison.rounds > 1 else "round"
    asked = f"{comparison.rounds} {noun}"
    return asked if done >= comparison.rounds else f"{done} of {asked}"


def _section(
    analysis: Analysis, experiment: ExperimentAnalysis, timeline_of: TimelineOf | None
) -> dict[str, Any]:
    """Return what the page's template needs of an experiment."""
    described, believed = experiment.experiment, experiment.believed
    curves, table = charts.curves_chart(experiment)
    times = charts.case_times_chart(experiment)
    if curves is not None and described.curves is not None and described.curves.in_place_of_times:
        times = None
    timelines, unprofiled = None, dict[str, str]()
    if timeline_of is not None:
        count = len(analysis.experiments)
        timelines, unprofiled = charts.timelines_chart(experiment, timeline_of, count)
    results = [result for _, result in charts.trained(experiment)]
    drawn = {
        "figure": charts.metric_chart(experiment),
        "times": times,
        "timelines": timelines,
        "differences": charts.differences_chart(experiment),
        "curves": curves,
        "layers": charts.layers_chart(experiment),
        "cost_model": charts.cost_model_chart(experiment),
        "learning": charts.learning_curves(analysis, experiment),
    }
    by_framework = _first_results(
        (analysed.results for analysed in believed), lambda cell: cell.backend
    )
    kernels = {name: kernels_in_words(result.backend) for name, result in by_framework.items()}
    graphs = {}
    for name, result in by_framework.items():
        if result.tasks:
            label = f"The graph of tasks that {name} recorded"
            graphs[name] = inline(TaskGraph(result.tasks), label)
    return {
        "described": described,
        "case": experiment.case,
        "lesson": experiment.answer,
        "remarks": [
            (cell.cell.side, cell.state, cell.reason) for cell in experiment.cells if cell.reason
        ],
        "warnings": [(cell.cell.side, warning) for cell in believed for warning in cell.warnings],
        **{name: inline(chart, f"{described.name}: {name}") for name, chart in drawn.items()},
        "unprofiled": unprofiled,
        "kernels": {name: words for name, words in kernels.items() if words},
        "table": table,
        "data": "; ".join(sorted({result.data for result in results if result.data})),
        "agreement_at_first": _max_loss_difference(results, FIRST_BATCHES),
        "agreement": _max_loss_difference(results),
        "graphs": graphs,
        "parameters": dict(believed[0].results.valid[0].parameters) if believed else {},
    }


def _first_results(cells: Iterable[CellResults], key: Callable[[Cell], str]) -> dict[str, Result]:
    """Return the first result of all cells that have the same key, by key."""
    results: dict[str, Result] = {}
    for cell_results in cells:
        if cell_results.valid:
            results.setdefault(key(cell_results.cell), cell_results.valid[0])
    return results


def _max_loss_difference(results: list[Result], batches: int | None = None) -> float | None:
    """Return the largest difference between losses of one batch, as a share of the larger one.

    None for a single result. `batches` limits it to the first ones.
    """
    losses = [result.series["loss"] for result in results]
    if len(losses) < 2:
        return None
    steps = list(zip(*losses, strict=False))[:batches]
    return max(1 - min(step) / max(step) if max(step) else 0.0 for step in steps)


def _environments(comparison: Comparison) -> list[dict[str, str]]:
    rows = [
        {
            "cell": side,
            "framework": result.backend["version"],
            "Python": result.environment["python"],
            "NumPy": result.environment["numpy"],
            "parallel-core": result.environment["parallel_core"],
            "devices": ", ".join(result.backend["devices"]),
            "threads each": str(result.backend["threads_per_device"]),
            "cores of each": " | ".join(
                ", ".join(map(str, cores)) for cores in result.backend["cores"]
            ),
            "matrix multiplication": kernels_in_words(result.backend),
            "who schedules": result.backend["scheduler"],
            "settings": ", ".join(
                f"{name}={value}" for name, value in result.backend["settings"].items() if value
            ),
            "variants": ", ".join(result.backend.get("variants", ())),
        }
        for side, result in _first_results(comparison.cells, lambda cell: cell.side).items()
    ]
    # Columns that are empty everywhere are left out.
    names = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    return [{name: row[name] for name in names} for row in rows]
