"""Pictures of a result or a timeline as SVG: for files, notebooks and the report."""

from pathlib import Path

from backends.profiling import Timeline
from parallel_core.measurement.result import Result
from parallel_core.system import files
from parallel_core.system.errors import RequestError

__all__ = ["as_svg", "check_drawing", "write_picture_file"]


def check_drawing(path: Path) -> None:
    """Raise RequestError unless a file's name ends in `.svg`."""
    if path.suffix.lower() != ".svg":
        raise RequestError(f"cannot draw {path}: pictures are SVG, so end its name in .svg")


def as_svg(shown: Result | Timeline) -> bytes:
    """Return the picture of a result or a timeline, the same bytes each time.

    Raises RequestError for a timeline without spans.
    """
    # Commands that draw nothing do not import these modules.
    from parallel_core.report.plots.result import result_picture
    from parallel_core.report.plots.timeline import timeline_picture

    return timeline_picture(shown) if isinstance(shown, Timeline) else result_picture(shown)


def write_picture_file(shown: Result | Timeline, path: Path) -> None:
    """Write the picture of a result or a timeline to a file; raises OSError."""
    files.write_whole(path, lambda stream: stream.write(as_svg(shown)))
