"""How a result shows itself in a notebook: tables in HTML, the verdict, and a picture."""

from io import BytesIO

from humanize import metric
from jinja2 import Environment, PackageLoader

from parallel_core.experiments import EXPERIMENTS
from parallel_core.formatting import engine_in_words, figure, quantity
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import labelled, write_point
from parallel_core.plots import can_draw, draw

__all__ = ["as_html", "as_png"]


def as_html(result: Result) -> str:
    """Return a result's tables and sentences as HTML."""
    environment = Environment(loader=PackageLoader("parallel_core.report", "."), autoescape=True, trim_blocks=True)
    environment.filters |= {"seconds": lambda value: metric(value, "s"), "figure": figure}
    curves = EXPERIMENTS[result.experiment].curves
    swept = curves if curves is not None and curves.over in result.series else None
    return environment.get_template("notebook.html.jinja").render(
        result=result,
        curves=swept,
        labelled=labelled(result.series, swept.quantity) if swept else {},
        points=[write_point(value, swept.over) for value in result.series[swept.over]] if swept else (),
        with_times=swept is None or not swept.in_place_of_times,
        quantity=quantity,
        engine_in_words=engine_in_words,
    )


def as_png(result: Result) -> bytes | None:
    """Return a result's picture; None where matplotlib is not installed."""
    if not can_draw():
        return None
    stream = BytesIO()
    draw(result, stream, "png")
    return stream.getvalue()
