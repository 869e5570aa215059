"""Put a comparison, its charts and the backends' code into one self-contained page."""

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

from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.storage import TimelineOf
from parallel_core.comparison.summary import Row, believed, rows
from parallel_core.comparison.verdicts import answer, answers
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.plots import can_draw, draw
from parallel_core.report import charts
from parallel_core.report.curves_chart import curves
from parallel_core.report.timelines_chart import panels, timelines
from parallel_core.report.verbs import verbs

__all__ = ["render"]

FIRST_BATCHES = 20
MAX_WARNINGS = 6
"""Unstable cases of a cell that are named; `pyperf check` names all."""
CHART_OPTIONS = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}


def render(comparison: Comparison, timeline_of: TimelineOf | None = None) -> str:
    """Return the report as HTML, with the cells' timelines where it is told how to read them."""
    environment = Environment(
        loader=PackageLoader("parallel_core.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = partial(metric, unit="s")
    environment.filters["bounds"] = with_bounds
    environment.filters["prose"] = prose
    backends = tuple(dict.fromkeys(measured.cell.backend for measured in comparison.cells))
    return environment.get_template("page.html.jinja").render(
        comparison=comparison,
        took=precisedelta(comparison.seconds, minimum_unit="seconds", format="%d"),
        memory=naturalsize(comparison.machine["memory_bytes"]),
        answer=answer(comparison),
        table=[row for experiment in comparison.experiments for row in rows(comparison, experiment)],
        experiments=[section(comparison, experiment, timeline_of) for experiment in comparison.experiments],
        dispatch=chart(charts.dispatch(comparison), "dispatch"),
        cost_model=chart(charts.cost_model(comparison), "cost-model"),
        learning=chart(charts.learning(comparison), "learning"),
        data=charts.training_data(comparison),
        surroundings=surroundings(comparison),
        agreement_at_first=charts.largest_loss_difference(comparison, FIRST_BATCHES),
        agreement=charts.largest_loss_difference(comparison),
        first_batches=FIRST_BATCHES,
        backends=backends,
        verbs=verbs(result.backend for measured in comparison.cells for result in measured.results),
        catalogue=EXPERIMENTS,
        style=resource(environment, "page.css"),
        script=resource(environment, "page.js"),
        light_code=Markup(HtmlFormatter(style="friendly").get_style_defs(".code")),
        dark_code=Markup(HtmlFormatter(style="github-dark").get_style_defs(".code")),
        plotly=Markup(get_plotlyjs()),
    )


def section(comparison: Comparison, experiment: str, timeline_of: TimelineOf | None) -> dict[str, Any]:
    """Return what the page shows of one experiment."""
    found = rows(comparison, experiment)
    swept = curves(comparison, experiment)
    described = EXPERIMENTS[experiment]
    enough = swept is not None and described.curves is not None and described.curves.in_place_of_times
    times = None if enough else charts.times(comparison, experiment)
    profiled, unprofiled = panels(comparison, experiment, timeline_of) if timeline_of else ([], {})
    return {
        "described": described,
        "answers": answers(comparison, experiment),
        "explanations": [(row.measured.cell.side, explanation(row)) for row in found if row.time],
        "against": [(row.measured.cell.side, told) for row in found for told in objections(row)],
        "figure": chart(charts.figures(comparison, experiment), f"figure-{experiment}"),
        "times": chart(times, f"times-{experiment}"),
        "timelines": chart(timelines(profiled), f"timelines-{experiment}"),
        "unprofiled": unprofiled,
        "curves": chart(swept, f"curves-{experiment}"),
        "graphs": graphs(comparison, experiment),
        "parameters": next((dict(row.measured.valid[0].parameters) for row in found if row.time), {}),
    }


def objections(row: Row) -> list[str]:
    """Return what speaks against a cell's numbers: of many unstable cases the first, and how many more there are."""
    more = len(row.warnings) - MAX_WARNINGS
    told = [row.reason, *row.warnings[:MAX_WARNINGS], f"and {more} more unstable cases" if more > 0 else ""]
    return [sentence for sentence in told if sentence]


def surroundings(comparison: Comparison) -> list[dict[str, str]]:
    """Return what each framework and engine ran on, once for each."""
    found: dict[str, dict[str, str]] = {}
    for measured in comparison.cells:
        for result in measured.valid[:1]:
            backend, environment = result.backend, result.environment
            found.setdefault(
                measured.cell.side,
                {
                    "cell": measured.cell.side,
                    "framework": backend["version"],
                    "Python": environment["python"],
                    "NumPy": environment["numpy"],
                    "parallel-core": environment["parallel_core"],
                    "devices": ", ".join(backend["devices"]),
                    "threads each": str(backend["threads_per_device"]),
                    "cores of each": " | ".join(", ".join(map(str, cores)) for cores in backend["cores"]),
                    "who schedules": backend["scheduler"],
                    "settings": ", ".join(f"{name}={value}" for name, value in backend["settings"].items() if value),
                    "variants": ", ".join(backend.get("variants", ())),
                },
            )
    if not any(one["variants"] for one in found.values()):
        for one in found.values():
            del one["variants"]
    return list(found.values())


def explanation(row: Row) -> str:
    """Return what the process in the middle of a cell's figures said of itself."""
    name = EXPERIMENTS[row.measured.cell.experiment].metric
    ordered = sorted(row.measured.valid, key=lambda result: result.metrics.get(name, 0.0))
    return ordered[len(ordered) // 2].explanation


def graphs(comparison: Comparison, experiment: str) -> list[Markup]:
    """Return the graph that each framework recorded, as SVG; none where there are none, or matplotlib is missing."""
    first = {one.cell.backend: one.valid[0] for one in reversed(believed(comparison, experiment)) if one.valid[0].tasks}
    if not can_draw():
        return []
    found = []
    for result in reversed(first.values()):
        stream = BytesIO()
        draw(result, stream, "svg")
        # A page holds the picture without the declarations of a file.
        found.append(Markup("<svg" + stream.getvalue().decode().partition("<svg")[2]))
    return found


def chart(drawn: Any, name: str) -> Markup | None:
    """Return a chart as HTML; None where there was nothing to draw."""
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


def prose(docstring: str) -> Markup:
    """Turn a docstring into paragraphs, with what stands in backticks as code."""
    paragraphs = [Markup("<p>{}</p>").format(paragraph.replace("\n", " ")) for paragraph in docstring.split("\n\n")]
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", "".join(paragraphs)))


def resource(environment: Environment, name: str) -> Markup:
    """Return one of the page's own files as it is."""
    loader = environment.loader
    assert loader is not None
    return Markup(loader.get_source(environment, name)[0])
