"""Pictures of one result, drawn by matplotlib: for `--plot`, and for notebooks."""

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from parallel_core.errors import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.formatting import engine_in_words
from parallel_core.measurement.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "can_draw", "check_drawing", "draw", "picture"]

FORMATS = ("png", "svg", "pdf")


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def check_drawing(path: Path) -> None:
    """Raise RequestError where a picture cannot be drawn: matplotlib is missing, or the file's format is unknown."""
    if path.suffix.removeprefix(".").lower() not in FORMATS:
        raise RequestError(f"{path} names no kind of picture: end it in {', '.join(f'.{one}' for one in FORMATS)}")
    if not can_draw():
        raise RequestError("a picture needs matplotlib: pip install 'parallel-core[plot]'")


def picture(result: Result) -> "Figure":
    """Draw a result: its graph, its learning curve, the curves of its sweep, or the times of its cases."""
    from parallel_core.plots.charts import cases, learning_curve, sweep
    from parallel_core.plots.task_graph import task_graph

    backend = result.backend
    side = f"{backend['name']} {backend['version']}, {engine_in_words(backend)}"
    if result.tasks:
        return task_graph(result.tasks, f"{result.parameters['of']}, recorded on {side}")
    curves = EXPERIMENTS[result.experiment].curves
    if "loss" in result.series:
        drawn = learning_curve(result)
    elif curves is not None and curves.over in result.series:
        drawn = sweep(result, curves)
    else:
        drawn = cases(result)
    titles = (f"{result.experiment} on {side}, {', '.join(backend['devices'])}", result.data)
    drawn.suptitle("\n".join(filter(None, titles)), fontsize="medium")
    return drawn


def draw(result: Result, stream: BinaryIO, kind: str) -> None:
    """Draw a result into a binary stream, as one of FORMATS; in SVG, text stays text."""
    from matplotlib import rc_context

    # Without a salt of its own, matplotlib would give the same picture other names each time.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "parallel-core"}):
        drawn = picture(result)
        drawn.savefig(stream, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
