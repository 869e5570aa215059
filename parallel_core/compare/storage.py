"""The folder that a comparison leaves: all results in one file, a page, suites for pyperf,
traces.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from backends.profiling import Timeline
from parallel_core.compare.results import Cell, Comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.run.recording import reason_path
from parallel_core.system import files
from parallel_core.system.errors import RequestError
from parallel_core.traces.trace_files import read_timeline

RESULT, REPORT, SUITES, TRACES = "comparison.json", "report.html", "pyperf", "traces"

TimelineOf = Callable[[Cell], Timeline]
"""Read a cell's timeline when it is needed, because all of them may fill the memory; raises
RequestError, in one line, if there is none.
"""


@contextmanager
def claimed_folder(named: Path | None, with_traces: bool) -> Iterator[Path]:
    """Make the folder of a new comparison, in `runs` if none is named, and in it one for traces.

    Within the `with` block no other comparison gets the folder. Raises RequestError if another one
    has it, and if it holds a comparison or a report.
    """
    if named is None:
        folder = files.make_dated_folder(files.RUNS, "comparison")
    else:
        folder = named
        files.make_folder(folder)
    with _claimed(folder):
        for name in (RESULT, REPORT):
            if (folder / name).exists():
                raise RequestError(f"{folder} holds {name} already: give another folder to --out")
            files.check_writable(folder / name)
        if with_traces:
            files.make_folder(folder / TRACES)
        yield folder


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Lock a folder; the system unlocks it when this process ends, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another comparison writes to {folder}: give another folder to --out"
            raise RequestError(message) from error
        except OSError:
            # Some network file systems lock no folders.
            pass
        yield
    finally:
        os.close(descriptor)


def result_path(path: Path) -> Path:
    """Return the file of a comparison that is named by its folder or file; raises OSError."""
    return path / RESULT if path.is_dir() else path


def read_comparison(path: Path) -> Comparison:
    """Read a comparison from its folder or file; raises RequestError, in one line, if it is
    none.
    """
    try:
        comparison = Comparison.from_json(msgspec.json.decode(result_path(path).read_bytes()))
    except OSError as error:
        raise RequestError(f"cannot read {error.filename or path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"{path} is not a comparison that parallel-core compare wrote"
        ) from error
    for name in comparison.experiments:
        if name not in EXPERIMENTS:
            raise RequestError(
                f"{path} holds the experiment {name!r}, which is not known here: read it with the "
                "version that measured it"
            )
    return comparison


def trace_path(folder: Path, cell: Cell) -> Path:
    """Return the file of a cell's trace in a comparison's folder."""
    return folder / TRACES / f"{cell.experiment}-{cell.backend}-{cell.engine}.json.gz"


def saved_timelines(folder: Path) -> TimelineOf | None:
    """Return the reader of a folder's timelines; None if the comparison was made without traces."""

    def timeline_of(cell: Cell) -> Timeline:
        path = trace_path(folder, cell)
        if path.exists():
            return read_timeline(path)
        try:
            reason = reason_path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            reason = "its process wrote no trace"
        raise RequestError(reason)

    return timeline_of if (folder / TRACES).is_dir() else None
