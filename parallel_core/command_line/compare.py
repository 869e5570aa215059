"""`parallel-core compare`: experiments × backends × engines in, a table, a report and the raw values out."""

import asyncio
import datetime
import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

import backends
from parallel_core import files
from parallel_core.command_line import options
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.rounds import Plan, Run
from parallel_core.comparison.rounds import compare as compare_cells
from parallel_core.errors import MeasurementError, RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.terminal.comparison import comparison_progress, show_comparison

__all__ = ["RESULT", "compare"]

RESULT = "comparison.json"


class Interpreter(click.ParamType[tuple[str, str]]):
    """NAME=PATH: the Python that runs a backend."""

    name = "interpreter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return name and path, or fail with a line that says what is missing."""
        if isinstance(value, tuple):
            return value
        backend, equals, given = value.partition("=")
        path = shutil.which(given)
        if not (backend and equals and given):
            self.fail(f"{value!r} is not of the form NAME=PATH, torch=/opt/new/bin/python say", param, ctx)
        if path is None:
            self.fail(f"{given!r} is not a program that can be run", param, ctx)
        return backend, path


@click.command()
@click.argument("experiment_names", nargs=-1, metavar="[EXPERIMENT]...")
@click.option(
    "--backends",
    "backend_names",
    type=options.Names("backend", backends.names),
    default="mxnet,torch",
    show_default=True,
    metavar="NAMES",
)
@click.option(
    "--engines",
    type=options.Names("engine", lambda: ("async", "sync")),
    default="async,sync",
    show_default=True,
    metavar="NAMES",
)
@click.option("--rounds", type=options.POSITIVE, help="Processes for each cell. Default: 5, with --quick 3.")
@click.option("--quick", is_flag=True, help="Shorter runs: a first look in some minutes.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="A new folder. Default: named by the time.")
@click.option(
    "--python",
    "interpreters",
    type=Interpreter(),
    multiple=True,
    metavar="NAME=PATH",
    help="The Python that runs a backend, where it needs an environment of its own.",
)
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    metavar="OLD",
    help="Take the sizes of a saved comparison, so that `diff` can hold both against each other.",
)
@click.option(
    "--deadline", type=options.Number(), default=600, show_default=True, help="Seconds that one process may take."
)
@options.devices
@options.device_kind
@options.threads
@options.json_file
def compare(
    experiment_names: tuple[str, ...],
    backend_names: tuple[str, ...],
    engines: tuple[str, ...],
    rounds: int | None,
    quick: bool,
    out: Path | None,
    interpreters: tuple[tuple[str, str], ...],
    like: Path | None,
    deadline: float,
    devices: int,
    device_kind: str,
    threads: int | None,
    json_path: Path | None,
) -> None:
    """Compare backends and engines: all experiments, or some.

    Every cell (experiment × backend × engine) runs in a fresh process, in interleaved rounds. The folder gets
    report.html, comparison.json, and pyperf/ with the raw times for pyperf's own tools.
    """
    plan = Plan(
        experiments=tuple(EXPERIMENTS[name] for name in known_experiments(experiment_names)),
        backends=backend_names,
        engines=engines,
        interpreters=choose_interpreters(backend_names, interpreters),
        rounds=rounds or (3 if quick else 5),
        mode="quick" if quick else "full",
        devices=devices,
        device_kind=known_device_kind(device_kind),
        threads=threads,
        deadline=deadline,
        sizes={} if like is None else sizes_of(read_comparison(like)),
    )
    if json_path is not None:
        files.check_writable(json_path)
    folder = new_folder(out)
    console = Console(stderr=json_path == files.STANDARD_OUTPUT, highlight=False)
    comparison = run_plan(plan, folder, Console(stderr=True, highlight=False))
    show_comparison(comparison, console)
    save_readable(comparison, folder)
    if json_path is not None:
        write_json(comparison, json_path)
    console.print(f"Report: {folder / 'report.html'}", soft_wrap=True)
    if not any(measured.valid for measured in comparison.cells):
        raise MeasurementError(f"nothing could be measured: {first_reason(comparison)}")


def known_experiments(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the experiments asked for, or all; fail for one that is not known or is named twice."""
    for name in names:
        if name not in EXPERIMENTS:
            raise click.UsageError(f"unknown experiment {name!r} (known: {', '.join(EXPERIMENTS)})")
    return tuple(dict.fromkeys(names)) or tuple(EXPERIMENTS)


def known_device_kind(kind: str) -> str:
    """Return the kind of device, or fail before anything is run."""
    if kind not in ("auto", "cpu", "gpu"):
        raise RequestError(f"unknown device kind {kind!r} (known: auto, cpu, gpu)")
    return kind


def choose_interpreters(names: tuple[str, ...], given: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return each backend's Python, this one where none was given; fail where parallel-core is not installed there."""
    for backend, path in given:
        if backend not in names:
            raise RequestError(f"--python names {backend!r}, which is not compared (compared: {', '.join(names)})")
        asked = [path, "-c", "import parallel_core.command_line"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RequestError(f"{path} cannot run parallel-core ({said}): install it there with {backend}")
    return dict.fromkeys(names, sys.executable) | dict(given)


def new_folder(out: Path | None) -> Path:
    """Make the folder for the results; one that holds results already is left alone."""
    folder = out or Path(f"comparison-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror}") from error
    if (folder / RESULT).exists():
        raise RequestError(f"{folder} holds a comparison already: give another folder to --out, or remove it")
    files.check_writable(folder / RESULT)
    return folder


def read_comparison(path: Path) -> Comparison:
    """Read a comparison from its folder or file; raises RequestError, in one line, for anything else."""
    file = path / RESULT if path.is_dir() else path
    try:
        return Comparison.from_json(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise RequestError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{file} is not a comparison that parallel-core compare wrote") from error


def sizes_of(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Return the calibrated parameters that a comparison's experiments were run with."""
    return {
        measured.cell.experiment: {
            name: result.parameters[name] for name in EXPERIMENTS[measured.cell.experiment].calibrated
        }
        for measured in comparison.cells
        for result in measured.results
        if measured.cell.experiment in EXPERIMENTS
    }


def run_plan(plan: Plan, folder: Path, console: Console) -> Comparison:
    """Run the plan, keeping what is measured after every process; leave at once on SIGINT, SIGTERM and SIGHUP."""
    path = folder / RESULT
    stopped_by: list[signal.Signals] = []

    def stop(number: signal.Signals, task: asyncio.Task[Comparison]) -> None:
        stopped_by.append(number)
        task.cancel()

    async def run_until_stopped() -> Comparison:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        # The processes have sessions of their own: no signal to this one's group reaches them.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number, task)
        with comparison_progress(console, plan.rounds) as on_run:

            def announce(run: Run) -> None:
                on_run(run)

            return await compare_cells(
                plan, shlex.join(["parallel-core", *sys.argv[1:]]), announce, lambda found: write_json(found, path)
            )

    try:
        return asyncio.run(run_until_stopped())
    except asyncio.CancelledError:
        leave(stopped_by[0], path)


def leave(number: signal.Signals, path: Path) -> NoReturn:
    """Say where the results so far are, and exit with the status that a signal gives."""
    kept = f"; what was measured until then is in {path}" if path.exists() else ""
    click.echo(f"parallel-core: interrupted{kept}", err=True)
    sys.exit(128 + number)


def save_readable(comparison: Comparison, folder: Path) -> None:
    """Write the pyperf suites and the report."""
    from parallel_core.comparison.pyperf_suites import save_suites
    from parallel_core.report import render

    save_suites(comparison, folder / "pyperf")
    page = render(comparison).encode()
    files.write_whole(folder / "report.html", lambda stream: stream.write(page))


def write_json(comparison: Comparison, path: Path) -> None:
    """Write the whole comparison."""
    text = json.dumps(comparison.as_json(), indent=1, ensure_ascii=False) + "\n"
    files.write_whole(path, lambda stream: stream.write(text.encode()))


def first_reason(comparison: Comparison) -> str:
    """Return why the first cell gave no result that counts."""
    from parallel_core.comparison.summary import judge

    return judge(comparison.cells[0])[1]
