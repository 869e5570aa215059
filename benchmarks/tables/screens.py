"""Screens of the program as text, from stored results, so that their changes are seen in diffs."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from parallel_core.compare.analysis import analyse
from parallel_core.compare.results import Comparison
from parallel_core.compare.storage import read_comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.conclusions import answer_of
from parallel_core.measurement.request import Work
from parallel_core.measurement.result import Result
from parallel_core.run.options import command_again
from parallel_core.terminal.comparison import show_screen
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.explanation import show_catalogue
from parallel_core.terminal.result import show
from parallel_core.terminal.trace import show_analysis, show_trace
from parallel_core.traces.profile.analysis import analyse as analyse_processes
from parallel_core.traces.profile.running import Recorded
from parallel_core.traces.ranks.reading import read_ranks

FOLDER = Path("docs/reference/screens")
RESULTS = Path("benchmarks/results/epyc-avx512-2-cores")
WIDTHS = (80, 120)
BACKENDS = ("mxnet", "torch")
TRACES = Path("tests/parallel_core/traces")
TRACE = TRACES / "stored/linked/ddp.json.gz"
PROGRAM = tuple(TRACES / f"profile/stored/ddp-rank{rank}.json.gz" for rank in (0, 1))
"""The recordings of which screens of `trace` and `profile` are kept."""
DETAILED = "parallel"
"""The experiment that is also shown with details."""


def screens() -> Iterator[tuple[Path, str]]:
    """Iterate over the files of screens, one for each width, with what they must hold."""
    measured = read_comparison(RESULTS)
    for width in WIDTHS:
        for name, show_on in _screens_of(measured).items():
            stream = io.StringIO()
            show_on(terminal_console(file=stream, width=width, color_system=None))
            lines = [line.rstrip() for line in stream.getvalue().strip().splitlines()]
            yield FOLDER / str(width) / f"{name}.txt", "\n".join([*lines, ""])


def _screens_of(measured: Comparison) -> Mapping[str, Callable[[Console], None]]:
    """Return functions that print screens, by name."""
    of_two = [results for results in measured.cells if results.cell.backend in BACKENDS]
    comparison = replace(measured, cells=tuple(of_two))
    shown: dict[str, Callable[[Console], None]] = {
        "list": partial(show_catalogue, EXPERIMENTS.values(), BACKENDS),
        "compare": partial(show_screen, analyse(comparison)),
        "trace": _show_trace,
        "profile": _show_profile,
    }
    for results in of_two:
        cell = results.cell
        if cell.engine == "async":
            result = answered_anew(results.valid[0])
            again = command_again(Work(experiment=cell.experiment, backend=cell.backend), result)
            name = f"run-{cell.experiment}-{cell.backend}"
            shown[name] = partial(show, result, again=again)
            if cell.experiment == DETAILED:
                shown[f"{name}-details"] = partial(show, result, again=again, with_details=True)
    return shown


def _show_trace(console: Console) -> None:
    """Print the screen of a stored trace."""
    (rank,) = read_ranks([TRACE]).values()
    show_trace(rank, False, False, console)


def _show_profile(console: Console) -> None:
    """Print what is said of a program of two processes."""
    processes = {
        path: Recorded(pid=rank, framework="torch", rank=rank, steps_recorded=2)
        for rank, path in enumerate(PROGRAM)
    }
    show_analysis(analyse_processes(processes), console)


def answered_anew(result: Result) -> Result:
    """Return a stored result with the answer that the program gives today."""
    experiment = EXPERIMENTS[result.experiment]
    answer = answer_of(
        experiment.metrics, experiment.changes, result, experiment.counts, experiment.answer
    )
    return replace(result, answer=answer)
