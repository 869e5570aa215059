"""`parallel-core run EXPERIMENT`: load a backend, run the experiment on it, show the result, write it."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

import click
from rich.console import Console

import backends
from backends import Device
from backends.errors import unknown
from backends.profiling import check_profiler
from parallel_core.command_line import options
from parallel_core.command_line.run.chosen import chosen_for
from parallel_core.command_line.run.experiment_options import parameter_options
from parallel_core.command_line.run.profiling import profile_and_show, profile_if_possible
from parallel_core.command_line.run.resources import files_of_resources, resource_options, run_with_resources
from parallel_core.command_line.run.side_by_side import is_several, run_side_by_side
from parallel_core.errors import DisturbedError, MeasurementError, RequestError
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.explanation import explanation
from parallel_core.experiments.runner.declaration import Work
from parallel_core.experiments.runner.guess import Guess, check_guess, judge
from parallel_core.jobs.rank import check_job, described, joined, share_gpus
from parallel_core.measurement.fresh_process import Measured
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import repeatable
from parallel_core.plots import check_drawing, write_picture_file
from parallel_core.system import files
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.explanation import show_explanation, show_variants
from parallel_core.terminal.layout import show_sentence
from parallel_core.terminal.measurement_progress import measurement_progress
from parallel_core.terminal.result import show, show_answer

__all__ = ["run"]

EXPLAIN = "--explain"
GIVEN = "parallel_core.given"
"""Under which a command's context keeps the options that are given."""


class _ExperimentGroup(click.Group):
    """A command for each experiment of the catalogue, in its order, built when it is asked for."""

    def list_commands(self, _: click.Context) -> list[str]:
        """List the experiments in the catalogue's order."""
        return list(EXPERIMENTS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """Build an experiment's command from what its module declares; None for one that is not known."""
        return _command_of(EXPERIMENTS[cmd_name]) if cmd_name in EXPERIMENTS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the experiment, or say which ones there are."""
        if args[0] not in EXPERIMENTS and not args[0].startswith("-"):
            raise click.UsageError(unknown("experiment", args[0], EXPERIMENTS))
        return super().resolve_command(ctx, args)


class _ExperimentCommand(click.Command):
    """An experiment's command, whose --explain knows the options that stand after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what is given as it is written, for --explain, which is called before the others are read."""
        if EXPLAIN in args:
            ctx.meta[GIVEN] = self.make_parser(ctx).parse_args(list(args))[0]
        return super().parse_args(ctx, args)


@click.group("run", cls=_ExperimentGroup)
def run() -> None:
    """Run one experiment on one backend."""


def _command_of(experiment: Experiment) -> click.Command:
    """Make an experiment's command: the options that all share, then its parameters, its resources, and the rounds."""

    @click.pass_context
    def command(
        ctx: click.Context,
        /,
        backend: str,
        engine: str | None,
        devices: int | tuple[Device, ...] | None,
        device_kind: str,
        threads: int | None,
        workers: int,
        variants: tuple[str, ...],
        json_path: Path | None,
        plot_path: Path | None,
        trace_path: Path | None,
        trace_if_possible: Path | None,
        timeline_path: Path | None,
        guess: float | None,
        interpreters: tuple[tuple[str, str], ...],
        work: Work = "own",
        **own: Any,
    ) -> None:
        if is_several(backend):
            run_side_by_side(experiment, ctx)
            return
        if interpreters:
            raise RequestError("--python is for several backends side by side: one alone runs in this Python")
        if guess is not None:
            check_guess(guess, experiment.main)
        where = check_job(experiment.name, backend)
        if where is not None and (trace_path or timeline_path):
            raise RequestError("the profilers see one process: leave out --trace and --timeline")
        if where is not None and where.rank:
            # The first rank shows and writes the result of all.
            json_path = plot_path = None
        if trace_path == files.STANDARD_OUTPUT:
            raise RequestError("--trace needs a file: standard output shows what was measured")
        for picture in filter(None, (plot_path, timeline_path)):
            check_drawing(picture)
        traced = trace_path or trace_if_possible
        files.check_outputs(json_path, plot_path, traced, timeline_path, others=files_of_resources(own))
        # Standard output belongs to the JSON if that goes there.
        console = terminal_console(stderr=json_path == files.STANDARD_OUTPUT)
        devices = devices or (experiment.devices if where is None else 1)
        if where is not None and isinstance(devices, int):
            share_gpus(where, devices)
        loaded = backends.load(backend, devices, device_kind, engine, threads, workers, variants)
        began = monotonic()
        if where is not None:
            with joined(loaded, where, experiment.name, own) as together:
                result = run_with_resources(experiment, together, own)
                if together.group.rank == 0:
                    judged = _judged(guess, result)
                    _write(described(result, together), console, json_path, plot_path, judged)
                    _answer(result, console, judged)
            _refuse_invalid(result)
            return
        if trace_path is not None or timeline_path is not None:
            check_profiler(loaded)
        profiled = trace_path or trace_if_possible or timeline_path
        progress = measurement_progress(terminal_console(stderr=True), experiment.name)
        # A training shows a bar of its own.
        shown = progress if experiment.extent is None else nullcontext()
        with repeatable() if profiled else nullcontext(), shown:
            result = run_with_resources(experiment, loaded, own, work)
        judged = _judged(guess, result)
        _write(result, console, json_path, plot_path, judged)
        by_trace = ""
        try:
            if trace_path is not None or timeline_path is not None:
                by_trace = profile_and_show(loaded, result, console, trace_path, timeline_path)
            elif trace_if_possible is not None:
                profile_if_possible(loaded, result, console, trace_if_possible)
        finally:
            _answer(result, console, judged, by_trace)
        if ctx.obj is not None:
            # `measure` collects what was measured.
            ctx.obj.append(Measured(result, began, monotonic()))
        _refuse_invalid(result)

    decorated: Any = command
    for option in reversed(_options_of(experiment)):
        decorated = option(decorated)
    words = {"help": experiment.question, "short_help": experiment.summary}
    return click.command(experiment.name, cls=_ExperimentCommand, **words)(decorated)


def _options_of(experiment: Experiment) -> list[Callable[[Any], Any]]:
    """List the options of an experiment's command, in the order of its help."""

    def explain_and_exit(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            console = terminal_console()
            show_explanation(explanation(experiment), console)
            show_variants(console, chosen_for(experiment, ctx.meta[GIVEN]))
            ctx.exit()

    parameters = experiment.parameters
    return [
        click.option(
            "--backend",
            required=True,
            metavar="NAME",
            help="A framework that `list` names; several with commas between them: side by side.",
        ),
        click.option("--engine", metavar="async|sync", help="Default: async if the backend has it."),
        options.devices_of_a_process(experiment.devices),
        options.device_kind,
        options.threads,
        options.workers,
        options.variants,
        options.json_file,
        options.plot_file,
        options.trace_file,
        options.trace_if_possible,
        options.timeline_file,
        options.interpreters,
        click.option(
            "--guess",
            type=float,
            metavar="NUMBER",
            help=f"Your guess of {experiment.main.name}, judged beside the answer: {experiment.main.means}.",
        ),
        click.option(
            EXPLAIN,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=explain_and_exit,
            help="Say what is asked, how it is measured and how to read it; run nothing.",
        ),
        *parameter_options([parameter for parameter in parameters if parameter.name != "rounds"]),
        *([options.work] if experiment.calibrated else []),
        *resource_options(experiment.program),
        *parameter_options([parameter for parameter in parameters if parameter.name == "rounds"]),
    ]


def _judged(guess: float | None, result: Result) -> Guess | None:
    """Hold a guess, if there is one, against the experiment's figure."""
    experiment = EXPERIMENTS[result.experiment]
    return None if guess is None else judge(guess, experiment.main, result)


def _write(
    result: Result, console: Console, json_path: Path | None, plot_path: Path | None, judged: Guess | None
) -> None:
    show(result, console, answered=False)
    written = result.as_json() | ({} if judged is None else {"guess": judged.as_json()})
    if json_path is not None:
        files.write_json(json_path, written)
    if plot_path is not None:
        write_picture_file(result, plot_path)


def _answer(result: Result, console: Console, judged: Guess | None, by_trace: str = "") -> None:
    """Print the answer, the last that is read; nothing of a trace if the result has no verdict."""
    if result.answer is not None:
        show_answer(result.answer, console, by_trace if result.has_verdict else "")
    if judged is not None:
        show_sentence(f"\n{judged.sentence}", console, "bold")


def _refuse_invalid(result: Result) -> None:
    if result.problems:
        error = DisturbedError if result.is_merely_disturbed else MeasurementError
        raise error(f"{result.experiment} on {result.backend['name']} gave an invalid result: {result.problems[0]}")
    if not result.has_verdict:
        raise DisturbedError(f"{result.experiment} on {result.backend['name']}: {result.explanation}")
