"""Results and profiles in a notebook: tables in HTML, the verdict, and a picture."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import WHAT_WOULD_CHANGE_IT, Result
from parallel_core.measurement.sweep import labelled, write_point
from parallel_core.report.plots import as_svg
from parallel_core.system.formatting import framework_in_words, quantity, seconds

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from parallel_core.run.prediction import Prediction


def register_in_notebooks(shell: "InteractiveShell") -> None:
    """Let IPython show results as tables and a picture, and profiles as a picture.

    The modules that define results and profiles are not imported.
    """
    formatter = shell.display_formatter
    formatter.ipython_display_formatter.for_type_by_name(
        "parallel_core.measurement.result", "Result", show_result
    )
    formatter.ipython_display_formatter.for_type_by_name(
        "parallel_core.run.prediction", "Prediction", show_prediction
    )
    formatter.formatters["image/svg+xml"].for_type_by_name(
        "parallel_core.run.recording",
        "Profile",
        lambda profile: as_svg(profile.timeline).decode(),
    )


def show_result(result: Result) -> None:
    """Display a result in the notebook that runs this code."""
    from IPython.display import HTML, SVG, display

    display(HTML(as_html(result)))
    display(SVG(as_svg(result)))


def show_prediction(prediction: "Prediction") -> None:
    """Display a guess beside its result, and the timeline, or without one the result's picture."""
    from IPython.display import SVG, display

    # Terminals show the plain text.
    display({"text/plain": repr(prediction), "text/html": prediction._repr_html_()}, raw=True)
    display(SVG(as_svg(prediction.timeline or prediction.result)))


def as_html(result: Result) -> str:
    """Return a result's tables and sentences as HTML."""
    # To import parallel_core in a notebook is to import this module, so jinja2 is imported only
    # when a result is shown.
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("parallel_core.report", "."), autoescape=True, trim_blocks=True
    )
    environment.filters["seconds"] = seconds
    curves = EXPERIMENTS[result.experiment].curves
    series_of_curves: Mapping[str, Sequence[float]] = {}
    points: list[str] = []
    with_times = True
    if curves is not None and curves.over not in result.series:
        curves = None
    if curves is not None:
        series_of_curves = labelled(result.series, curves.quantity)
        points = [write_point(value, curves.over) for value in result.series[curves.over]]
        with_times = not curves.in_place_of_times
    return environment.get_template("notebook.html.jinja").render(
        result=result,
        curves=curves,
        labelled=series_of_curves,
        points=points,
        with_times=with_times,
        quantity=quantity,
        question=EXPERIMENTS[result.experiment].question,
        framework=framework_in_words(result.backend),
        WHAT_WOULD_CHANGE_IT=WHAT_WOULD_CHANGE_IT,
    )
