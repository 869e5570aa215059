"""Pictures of a result or a timeline, drawn by matplotlib, which is an extra: for files, notebooks and the report."""

from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from backends.profiling import Timeline
from parallel_core.errors import RequestError
from parallel_core.measurement.result import Result
from parallel_core.system import files

__all__ = ["FORMATS", "as_png", "can_draw", "check_drawing", "draw", "write_picture_file"]

FORMATS = ("png", "svg", "pdf")


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def check_drawing(path: Path) -> None:
    """Raise RequestError if a picture cannot be drawn: matplotlib is missing, or the file's format is unknown."""
    if _format(path) not in FORMATS:
        raise RequestError(f"{path} names no kind of picture: end it in {', '.join(f'.{one}' for one in FORMATS)}")
    if not can_draw():
        raise RequestError("a picture needs matplotlib: pip install 'parallel-core[plot]'")


def draw(shown: Result | Timeline, stream: BinaryIO, kind: str) -> None:
    """Draw a result or a timeline into a binary stream, as one of FORMATS; in SVG, text stays text.

    Raises RequestError for a timeline without spans.
    """
    from matplotlib import rc_context

    from parallel_core.plots.charts import result_figure
    from parallel_core.plots.timeline import TimelinePicture, timeline_picture
    from parallel_core.plots.titles import with_titles

    # Without a salt of its own, matplotlib would give the same picture other names each time.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "parallel-core"}):
        drawn = timeline_picture(shown) if isinstance(shown, Timeline) else TimelinePicture(result_figure(shown), {})
        if kind != "svg":
            drawn.figure.savefig(stream, format=kind, dpi=110)
            return
        plain = BytesIO()
        drawn.figure.savefig(plain, format=kind, metadata={"Date": None})
        stream.write(with_titles(plain.getvalue(), drawn.titles))


def as_png(shown: Result | Timeline) -> bytes | None:
    """Return a picture as PNG; None if matplotlib is not installed."""
    if not can_draw():
        return None
    stream = BytesIO()
    draw(shown, stream, "png")
    return stream.getvalue()


def write_picture_file(shown: Result | Timeline, path: Path) -> None:
    """Draw into a file, in the format of its ending, which `check_drawing` checks. Raises OSError."""
    files.write_whole(path, lambda stream: draw(shown, stream, _format(path)))


def _format(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
