"""`parallel-core compare`: measure experiments × backends × engines; print tables, write a report
and raw values.
"""

import asyncio
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from backends.errors import unknown
from backends.registry.variants import compared_names, framework_of
from parallel_core.command_line import options
from parallel_core.compare.analysis import Analysis, analyse
from parallel_core.compare.environments import python_with
from parallel_core.compare.plan import Plan
from parallel_core.compare.results import Comparison
from parallel_core.compare.runner import run_comparison
from parallel_core.compare.storage import (
    REPORT,
    RESULT,
    claimed_folder,
    read_comparison,
    result_path,
)
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.explanation import about_unknown
from parallel_core.report import write_report
from parallel_core.system import files
from parallel_core.system.errors import DisturbedError, MeasurementError, RequestError
from parallel_core.system.signals import until_stopped
from parallel_core.system.subprocesses import supervise
from parallel_core.terminal.comparison import comparison_progress, show_screen
from parallel_core.terminal.console import terminal_console

ROUNDS, QUICK_ROUNDS, MOST_ROUNDS = 5, 3, 10
"""How many processes each cell has, in full and with --quick: the fewest that give an interval. At
most so many if time decides.
"""
MINUTES_FOR_A_CELL = 0.25
"""How long --quick may take unless the user says: 4 minutes for the chapters' demonstrations, which
slow machines need.
"""
SHORTEST_MINUTES = 1.0
FULL_MINUTES_FOR_A_CELL = 1.5
"""With fewer minutes, sizes are those of --quick: three processes with the full ones would not fit
on a machine of usual speed.
"""
DEVICE_KINDS, ENGINES = ("auto", "cpu", "gpu"), ("async", "sync")
ANSWER_SECONDS = 60.0
"""How long a Python may take to import parallel-core."""


@click.command()
@click.argument("experiment_names", nargs=-1, metavar="[EXPERIMENT]...")
@options.option("--backends", type=options.names("backend", compared_names), default="mxnet,torch")
@options.option("--engines", type=options.names("engine", lambda: ENGINES), default="async,sync")
@options.option(
    "--rounds",
    type=options.POSITIVE,
    help="Processes for each cell. Default: 5, with --quick 3, with --minutes what it allows.",
)
@click.option(
    "--all",
    "with_exercises",
    is_flag=True,
    help="The chapters' exercises too, if no experiment is named.",
)
@click.option("--quick", is_flag=True, help="Shorter runs: a first look in some minutes.")
@click.option(
    "--minutes",
    type=options.NUMBER,
    help="How long it may take: there are fewer rounds; one is run in any case. Below 24 for 16 "
    "cells, and so on, sizes are those of --quick. Default: no limit; with --quick and without "
    "--like, 4 for 16 cells.",
)
@options.path("--out", "out", "A new folder. Default: in runs/, named by the time.", "DIR")
@options.interpreters
@options.path(
    "--like",
    "like",
    "Do the work of a saved comparison, with its sizes, so that `diff` can compare the two.",
    "OLD",
)
@options.option(
    "--deadline", type=options.NUMBER, default="600", help="Seconds that one process may take."
)
@click.option(
    "--traces/--no-traces",
    "with_traces",
    default=True,
    help="Profile each cell in its first process, after the timed part, and show timelines. "
    "Default: with traces.",
)
@options.option(
    "--devices", type=click.IntRange(1, options.MOST_DEVICES), default=2, help="Logical devices."
)
@options.device_kind
@options.threads
@options.json_file
def compare(
    experiment_names: tuple[str, ...],
    with_exercises: bool,
    interpreters: tuple[tuple[str, str], ...],
    quick: bool,
    rounds: int | None,
    minutes: float | None,
    out: Path | None,
    like: Path | None,
    with_traces: bool,
    json_path: Path | None,
    **of_plan: Any,
) -> None:
    """Compare backends and engines.

    Runs the chapters' demonstrations, or the experiments that are named.

    Every cell (experiment × backend × engine) runs in a fresh process in each round, and those of a
    round live together and take turns. With --quick all experiments on a backend and engine share a
    process. The folder gets report.html, comparison.json, pyperf/ with the raw times for pyperf's
    own tools, and traces/ with the recordings of the frameworks' profilers.
    """
    kind = of_plan["device_kind"]
    refuse_unknown("device kind", kind, DEVICE_KINDS)
    usual_rounds = QUICK_ROUNDS if quick else ROUNDS
    if minutes is not None:
        usual_rounds = MOST_ROUNDS
    plan = Plan(
        experiments=tuple(
            EXPERIMENTS[name] for name in known_experiments(experiment_names, with_exercises)
        ),
        interpreters=choose_interpreters(of_plan["backends"], interpreters),
        rounds=rounds or usual_rounds,
        mode="quick" if quick else "full",
        shared=quick,
        # In a quick look cells without queues have one process each, beside cells with queues.
        controls_once=quick and rounds is None and like is None and "async" in of_plan["engines"],
        on_gpus=kind == "gpu" or (kind == "auto" and bool(shutil.which("nvidia-smi"))),
        **of_plan,
    )
    if like is not None:
        plan = _with_sizes_of(plan, read_comparison(like), like)
    elif quick and minutes is None:
        minutes = max(SHORTEST_MINUTES, MINUTES_FOR_A_CELL * len(plan.cells))
    elif minutes is not None and minutes < FULL_MINUTES_FOR_A_CELL * len(plan.cells):
        plan = replace(plan, mode="quick", shared=True)
    if minutes is not None:
        plan = replace(plan, seconds=60 * minutes)
    kept = [
        *([] if out is None else [out / REPORT, out / RESULT]),
        *([] if like is None else [result_path(like)]),
    ]
    files.check_outputs(json_path, others=kept)
    # Claimed until the command has ended.
    folder = click.get_current_context().with_resource(claimed_folder(out, with_traces))
    if with_traces:
        plan = replace(plan, traces_in=folder)
    comparison = run_plan(plan, folder, terminal_console(stderr=True))
    analysis = analyse(comparison)
    # Everything is written before anything is shown: a pipe that closes early must not cost the
    # results.
    page = write_report(analysis, folder)
    files.write_json(json_path, comparison.as_json())
    console = options.console_beside(json_path)
    show_screen(analysis, console)
    console.print(f"Report:  {page}", soft_wrap=True)
    again = f"parallel-core report {shlex.quote(str(folder))} --details"
    console.print(f"Tables:  {again}", soft_wrap=True)
    refuse_unmeasured(analysis)


def refuse_unknown(what: str, name: str, known: Sequence[str]) -> None:
    """Raise RequestError if a name is none of those that are known; the error calls them `what`."""
    if name not in known:
        raise RequestError(unknown(what, name, known))


def refuse_unmeasured(analysis: Analysis) -> None:
    """Raise MeasurementError if no cell gave a result to be believed, or DisturbedError if all were
    disturbed.
    """
    if analysis.believed:
        return
    error: type[MeasurementError] = DisturbedError
    for cell in analysis.cells:
        results = cell.results.results
        # What gave no result at all is not explained by a disturbed machine.
        if not results or not all(result.is_merely_disturbed for result in results):
            error = MeasurementError
    raise error(f"nothing could be measured: {analysis.cells[0].reason}")


def known_experiments(names: tuple[str, ...], with_exercises: bool) -> tuple[str, ...]:
    """Return the experiments that are named, each once, or else those of the catalogue.

    Raises UsageError for a name that none has.
    """
    for name in names:
        if name not in EXPERIMENTS:
            raise click.UsageError(about_unknown(name))
    if names and with_exercises:
        raise click.UsageError("--all names every experiment already: leave out the names")
    catalogued = [
        experiment.name
        for experiment in EXPERIMENTS.values()
        if with_exercises or not experiment.occasion
    ]
    return tuple(dict.fromkeys(names or catalogued))


def choose_interpreters(
    names: tuple[str, ...], given: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """Return each backend's Python, as given or found; fail if parallel-core is not installed in
    one that is given.
    """
    frameworks = dict.fromkeys(map(framework_of, names))
    for backend, path in given:
        if backend not in frameworks:
            raise RequestError(
                f"--python names {backend!r}, which is not compared (compared: "
                f"{', '.join(frameworks)})"
            )
        reason = _why_it_cannot_run(path)
        if reason:
            raise RequestError(
                f"{path} cannot run parallel-core ({reason}): install it there with {backend}"
            )
    interpreters = {}
    for name in names:
        backend = framework_of(name)
        interpreters[name] = dict(given).get(backend) or python_with(backend)
    return interpreters


def _why_it_cannot_run(interpreter: str) -> str:
    """Say why a Python cannot run parallel-core; empty if it can."""
    asked = [interpreter, "-P", "-c", "import parallel_core.run.worker"]
    try:
        outcome = asyncio.run(supervise(asked, ANSWER_SECONDS, set()))
    except OSError as error:
        return error.strerror or str(error)
    return outcome.reason(ANSWER_SECONDS) if outcome.status else ""


def _with_sizes_of(plan: Plan, old: Comparison, path: Path) -> Plan:
    """Return the plan with the sizes of a saved comparison; fail if the rest of the work is not the
    same.
    """
    if old.quick:
        # --minutes chooses these sizes, too.
        plan = replace(plan, mode="quick")
    wanted = {
        "mode": "quick" if old.quick else "full",
        **{name: old.options.get(name) for name in ("devices", "device_kind", "threads")},
    }
    for name, value in wanted.items():
        if getattr(plan, name) != value:
            option = "--quick" if name == "mode" else f"--{name.replace('_', '-')}"
            raise RequestError(
                f"--like {path} was made with {name} {value}, not {getattr(plan, name)}: see "
                f"{option}"
            )
    sizes: dict[str, dict[str, Any]] = {}
    for results in old.cells:
        # What a comparison chooses to suit the machine and the time.
        names = EXPERIMENTS[results.cell.experiment].amounts
        for result in results.results:
            if all(name in result.parameters for name in names):
                sizes[results.cell.experiment] = {name: result.parameters[name] for name in names}
    return replace(plan, sizes=sizes, shared=bool(old.options.get("shared")))


def run_plan(plan: Plan, folder: Path, console: Console, stays: bool = True) -> Comparison:
    """Run a plan, and save the results in a folder after every process; exit at once on SIGINT,
    SIGTERM and SIGHUP.

    If the folder `stays`, the user reads where to see what was measured until then.
    """
    path = folder / RESULT
    command = shlex.join(["parallel-core", *sys.argv[1:]])
    with comparison_progress(console) as on_run:
        running = run_comparison(
            plan, command, on_run, lambda so_far: files.write_json(path, so_far.as_json())
        )
        comparison = asyncio.run(until_stopped(running))
    if not isinstance(comparison, signal.Signals):
        return comparison
    again = shlex.join(["parallel-core", "report", str(folder)])
    kept = f"; see what was measured until then: {again}" if stays and path.exists() else ""
    click.echo(f"parallel-core: interrupted{kept}", err=True)
    raise click.exceptions.Exit(128 + comparison)
