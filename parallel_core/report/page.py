"""Put an analysis, its charts and the backends' code into one self-contained page."""

import re
from functools import partial
from io import BytesIO
from typing import Any

from humanize import metric, naturalsize, precisedelta
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.io import to_html
from plotly.offline import get_plotlyjs
from pygments.formatters import HtmlFormatter

from parallel_core.comparison.analysis import Analysis, CellAnalysis, ExperimentAnalysis
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.storage import TimelineOf
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.measurement.result import Result
from parallel_core.plots import can_draw, draw
from parallel_core.report.charts import (
    case_times_chart,
    cost_model_chart,
    dispatch_chart,
    learning_chart,
    metric_chart,
    trained,
)
from parallel_core.report.curves_chart import curves_chart
from parallel_core.report.timelines_chart import panels, timelines_chart
from parallel_core.report.verbs import verbs

__all__ = ["as_markup", "render"]

FIRST_BATCHES = 20
MAX_WARNINGS = 6
"""How many unstable cases of a cell are named; `pyperf check` names all."""
CHART_OPTIONS = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}


def render(analysis: Analysis, timeline_of: TimelineOf | None = None) -> str:
    """Return the report as HTML, with the cells' timelines if there is a way to read them."""
    environment = Environment(
        loader=PackageLoader("parallel_core.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = partial(metric, unit="s")
    environment.filters["bounds"] = with_bounds
    environment.filters["prose"] = _prose
    comparison = analysis.comparison
    results = [result for _, result in trained(analysis)]
    return environment.get_template("page.html.jinja").render(
        comparison=comparison,
        took=precisedelta(comparison.seconds, minimum_unit="seconds", format="%d"),
        memory=naturalsize(comparison.machine["memory_bytes"]),
        answer=analysis.answer,
        cells=analysis.cells,
        experiments=[_section(analysis, experiment, timeline_of) for experiment in analysis.experiments],
        dispatch=as_markup(dispatch_chart(analysis), "dispatch"),
        cost_model=as_markup(cost_model_chart(analysis), "cost-model"),
        learning=as_markup(learning_chart(analysis), "learning"),
        data="; ".join(sorted({result.data for result in results if result.data})),
        environments=_environments(comparison),
        agreement_at_first=_max_loss_difference(results, FIRST_BATCHES),
        agreement=_max_loss_difference(results),
        first_batches=FIRST_BATCHES,
        backends=analysis.backends,
        verbs=verbs(result.backend for cell in comparison.cells for result in cell.results),
        catalogue=EXPERIMENTS,
        light_code=Markup(HtmlFormatter(style="friendly").get_style_defs(".code")),
        dark_code=Markup(HtmlFormatter(style="github-dark").get_style_defs(".code")),
        plotly=Markup(get_plotlyjs()),
    )


def _section(analysis: Analysis, experiment: ExperimentAnalysis, timeline_of: TimelineOf | None) -> dict[str, Any]:
    described, believed = experiment.experiment, experiment.believed
    name = described.name
    curves = curves_chart(experiment)
    without_times = curves is not None and described.curves is not None and described.curves.in_place_of_times
    profiled, unprofiled = panels(experiment, timeline_of) if timeline_of else ([], {})
    return {
        "described": described,
        "sentences": experiment.sentences,
        "explanations": [(cell.cell.side, _median_explanation(cell)) for cell in believed],
        "objections": [(cell.cell.side, sentence) for cell in experiment.cells for sentence in _objections(cell)],
        "figure": as_markup(metric_chart(analysis, experiment), f"figure-{name}"),
        "times": None if without_times else as_markup(case_times_chart(analysis, experiment), f"times-{name}"),
        "timelines": as_markup(timelines_chart(profiled), f"timelines-{name}"),
        "unprofiled": unprofiled,
        "curves": as_markup(curves, f"curves-{name}"),
        "graphs": _graph_pictures(experiment),
        "parameters": dict(believed[0].results.valid[0].parameters) if believed else {},
    }


def _objections(cell: CellAnalysis) -> list[str]:
    more = len(cell.warnings) - MAX_WARNINGS
    sentences = [cell.reason, *cell.warnings[:MAX_WARNINGS], f"and {more} more unstable cases" if more > 0 else ""]
    return [sentence for sentence in sentences if sentence]


def _max_loss_difference(results: list[Result], batches: int | None = None) -> float | None:
    """Return the largest difference between losses of one batch, as a share of the loss; None for one result or none.

    `batches` limits it to the first ones.
    """
    losses = [result.series["loss"] for result in results]
    if len(losses) < 2:
        return None
    return max(max(step) / min(step) - 1 for step in list(zip(*losses, strict=False))[:batches])


def _environments(comparison: Comparison) -> list[dict[str, str]]:
    first_results: dict[str, Result] = {}
    for results in comparison.cells:
        if results.valid:
            first_results.setdefault(results.cell.side, results.valid[0])
    rows = [
        {
            "cell": side,
            "framework": result.backend["version"],
            "Python": result.environment["python"],
            "NumPy": result.environment["numpy"],
            "parallel-core": result.environment["parallel_core"],
            "devices": ", ".join(result.backend["devices"]),
            "threads each": str(result.backend["threads_per_device"]),
            "cores of each": " | ".join(", ".join(map(str, cores)) for cores in result.backend["cores"]),
            "who schedules": result.backend["scheduler"],
            "settings": ", ".join(f"{name}={value}" for name, value in result.backend["settings"].items() if value),
            "variants": ", ".join(result.backend.get("variants", ())),
        }
        for side, result in first_results.items()
    ]
    with_variants = any(row["variants"] for row in rows)
    return [{name: value for name, value in row.items() if name != "variants" or with_variants} for row in rows]


def _median_explanation(cell: CellAnalysis) -> str:
    name = EXPERIMENTS[cell.cell.experiment].metric
    ordered = sorted(cell.results.valid, key=lambda result: result.metrics.get(name, 0.0))
    return ordered[len(ordered) // 2].explanation


def _graph_pictures(experiment: ExperimentAnalysis) -> list[Markup]:
    if not can_draw():
        return []
    first_results: dict[str, Result] = {}
    for cell in experiment.believed:
        if cell.results.valid[0].tasks:
            first_results.setdefault(cell.cell.backend, cell.results.valid[0])
    pictures = []
    for result in first_results.values():
        stream = BytesIO()
        draw(result, stream, "svg")
        # A page holds the picture without the declarations of a file.
        pictures.append(Markup("<svg" + stream.getvalue().decode().partition("<svg")[2]))
    return pictures


def as_markup(drawn: Any, name: str) -> Markup | None:
    """Return a chart as HTML; None if there is no chart."""
    if drawn is None:
        return None
    html = to_html(
        drawn,
        config=CHART_OPTIONS,
        include_plotlyjs=False,
        full_html=False,
        div_id=f"chart-{name}",
        default_height=f"{drawn.layout.height}px",
    )
    return Markup(html)


def _prose(docstring: str) -> Markup:
    paragraphs = [Markup("<p>{}</p>").format(paragraph.replace("\n", " ")) for paragraph in docstring.split("\n\n")]
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", "".join(paragraphs)))
