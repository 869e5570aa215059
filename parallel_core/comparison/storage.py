"""The folder that a comparison leaves: everything whole in one file, a page to look at, suites for pyperf."""

import datetime
import json
from pathlib import Path

from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.fold_storage__traces import saved_timelines
from parallel_core.errors import RequestError
from parallel_core.experiments.fold___init____catalogue import EXPERIMENTS
from parallel_core.system import files

__all__ = ["REPORT", "RESULT", "new_folder", "read_comparison", "write_comparison", "write_readable"]

RESULT, REPORT, SUITES = "comparison.json", "report.html", "pyperf"


def new_folder(out: Path | None) -> Path:
    """Make a folder, named by the time where no name is given; raises RequestError for one that holds a comparison."""
    folder = out or Path(f"comparison-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = (folder / RESULT).exists()
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror}") from error
    if occupied:
        raise RequestError(f"{folder} holds a comparison already: give another folder to --out, or remove it")
    files.check_writable(folder / RESULT)
    return folder


def read_comparison(path: Path) -> Comparison:
    """Read a comparison from its folder or file; raises RequestError, in one line, for anything else."""
    try:
        file = path / RESULT if path.is_dir() else path
        comparison = Comparison.from_json(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise RequestError(f"cannot read {error.filename or path}: {error.strerror}") from error
    except ValueError as error:
        raise RequestError(f"{path} is not a comparison that parallel-core compare wrote") from error
    for name in comparison.experiments:
        if name not in EXPERIMENTS:
            raise RequestError(f"{path} holds the experiment {name!r}, which is not known here: update parallel-core")
    return comparison


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write everything, whole or not at all; raises OSError."""
    text = json.dumps(comparison.as_json(), indent=1, ensure_ascii=False) + "\n"
    # The command line may hold bytes that are no text.
    files.write_whole(path, lambda stream: stream.write(text.encode(errors="replace")))


def write_readable(comparison: Comparison, folder: Path) -> Path:
    """Write the report, with the timelines of the folder's traces, and the pyperf suites; return the report's path.

    Raises OSError.
    """
    # Their libraries take half a second to import, which `parallel-core run` need not wait for.
    from parallel_core.comparison.pyperf_export import save_suites
    from parallel_core.report import render

    page = render(comparison, saved_timelines(folder)).encode(errors="replace")
    files.write_whole(folder / REPORT, lambda stream: stream.write(page))
    save_suites(comparison, folder / SUITES)
    return folder / REPORT
