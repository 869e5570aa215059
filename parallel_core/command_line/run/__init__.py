"""`parallel-core run EXPERIMENT`: a command for each experiment, on one backend or on several in
turn.

`parallel-core measure` does such runs for another process.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import click

import backends
from backends.devices import DeviceKind
from backends.installation.frameworks import is_installed
from backends.registry.variants import frameworks
from parallel_core.command_line import compare, options
from parallel_core.command_line.commands import USUAL_ORDER, Commands, usual_backend
from parallel_core.command_line.run.one_backend import run_on_one_backend
from parallel_core.command_line.run.resources import parameter_options, resource_options
from parallel_core.command_line.run.side_by_side import run_side_by_side
from parallel_core.doctor.gpus import ask_driver
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.explanation import about_unknown, explanation
from parallel_core.experiments.runner.counting import REPETITIONS
from parallel_core.experiments.runner.guess import read_guess
from parallel_core.experiments.runner.parameters import MOST
from parallel_core.measurement.result import Result
from parallel_core.measurement.turns import end_experiment, end_turn, options_of_turn, take_turns
from parallel_core.system.errors import MeasurementError
from parallel_core.system.subprocesses import has_lifeline, leave_with_starter
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.explanation import Chosen, show_explanation, show_variants

GIVEN = "parallel_core.given"
"""The key under which a command's context keeps the options that the user gave."""
BESIDE_THE_WORK = (
    "json_path",
    "plot_path",
    "trace_path",
    "trace_if_possible",
    "timeline_path",
    "guess",
    "details",
)
"""The parameters that do not change a run's work: the files that it writes, and a guess."""


class _ExperimentGroup(Commands):
    """A group with a command for each experiment, which is built only when it is needed."""

    def list_commands(self, _: click.Context) -> list[str]:
        """List the experiments in the catalogue's order."""
        return list(EXPERIMENTS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """Build the command of an experiment; None if there is no such experiment."""
        if cmd_name not in EXPERIMENTS:
            return None
        return _command_of(EXPERIMENTS[cmd_name])

    def about_unknown(self, name: str, _: Sequence[str]) -> str:
        """Say that no experiment has this name, and which one may be meant."""
        return about_unknown(name)


class _ExperimentCommand(click.Command):
    """An experiment's command, whose --explain knows the options that are written after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the given options as they are written, for other processes and for --explain, which
        is called before click has read all options.
        """
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[GIVEN] = given
        return super().parse_args(ctx, args)


@click.group("run", cls=_ExperimentGroup)
def run() -> None:
    """Run one experiment on one backend."""


@click.command(hidden=True)
@click.argument("runs", nargs=-1, required=True)
@click.option("--turns", "ended_on", type=click.IntRange(0, MOST), help="Descriptor.")
def measure(runs: tuple[str, ...], ended_on: int | None) -> None:
    """Do RUNS, each the arguments of `run` in one word, and print a line of JSON for each that
    gives a result.

    A run that fails ends the process as it does by itself; one that gives an invalid result, after
    all have been done. So does the end of a pipe on standard input, which the process that wants
    the results holds; it gives turns there, too, if they are to be ended on a descriptor.
    """
    if ended_on is not None:
        take_turns(ended_on)
        run.main([*shlex.split(runs[0]), "--only-load=yes"], standalone_mode=False)
        end_turn()
    elif has_lifeline():
        leave_with_starter()
    measured: list[Result] = []
    invalid: MeasurementError | None = None
    for number, words in enumerate(runs, 1):
        try:
            # The tables of the run are not printed.
            with redirect_stdout(StringIO()):
                run.main(
                    [*shlex.split(words), *options_of_turn()], standalone_mode=False, obj=measured
                )
        except MeasurementError as error:
            if len(measured) < number:
                raise
            invalid = error
        # The output of a library may lack a newline at its end.
        click.echo(f"\n{json.dumps(measured[-1].as_json())}")
        end_experiment()
    if invalid is not None:
        raise invalid


def _command_of(experiment: Experiment) -> click.Command:
    """Make an experiment's command: shared options, then parameters, resources and rounds."""
    shared = _shared_options(experiment)
    rounds = [parameter for parameter in experiment.parameters if parameter.name == "rounds"]
    others = [parameter for parameter in experiment.parameters if parameter.name != "rounds"]
    own_options = [
        *parameter_options(others),
        *resource_options(experiment.program),
        *parameter_options(rounds),
    ]

    @click.pass_context
    def command(ctx: click.Context, /, **values: Any) -> None:
        if "," in values["backend"]:
            run_side_by_side(experiment, ctx, ctx.meta[GIVEN])
            return
        own_parameters = ctx.command.params[len(shared) :]
        own_values = {}
        for parameter in own_parameters:
            name = str(parameter.name)
            own_values[name] = values[name]
        run_on_one_backend(experiment, values, own_values, _given_work(ctx), ctx.obj)

    decorated: Any = command
    for option in reversed([*shared, *own_options]):
        decorated = option(decorated)
    return click.command(experiment.name, cls=_ExperimentCommand, help=experiment.question)(
        decorated
    )


def _given_work(ctx: click.Context) -> dict[str, Any]:
    """Return the given options that decide a run's work, by name, as they are written."""
    given = ctx.meta[GIVEN]
    work: dict[str, Any] = {}
    for parameter in ctx.command.params:
        if parameter.name in given and parameter.name not in BESIDE_THE_WORK:
            value = given[parameter.name]
            option = parameter.opts[0].removeprefix("--")
            work[option] = tuple(value) if isinstance(value, list) else value
    return work


def _shared_options(experiment: Experiment) -> list[Callable[[Any], Any]]:
    """Return the options that every experiment's command has, in the order of its help."""

    def explain_and_exit(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        """Print the explanation of the experiment, and exit, if that is wanted."""
        if wanted:
            console = terminal_console()
            show_explanation(explanation(experiment), console)
            show_variants(console, chosen_for(experiment, ctx.meta[GIVEN]))
            ctx.exit()

    return [
        click.option(
            "--backend",
            default=usual_backend,
            metavar="NAME",
            help="A framework that `list` names; several with commas between them: side by side.  "
            f"[default: the first that is installed of {', '.join(USUAL_ORDER)}]",
        ),
        click.option(
            "--engine", metavar="async|sync", help="Default: async if the backend has it."
        ),
        click.option(
            "--devices",
            type=options.DEVICES,
            help="Logical devices of a process: how many, or which (cpu:1,gpu:0; gpu:0/0,gpu:0/1 "
            "for two streams on a "
            f"GPU).  [default: {experiment.devices}; 1 for each of several processes; at most "
            f"{options.MOST_DEVICES}]",
        ),
        options.device_kind,
        options.threads,
        options.workers,
        options.variants,
        options.json_file,
        options.path("--plot", "plot_path", "A picture, as SVG."),
        options.path(
            "--trace",
            "trace_path",
            "A Chrome trace (.json or .json.gz) of one more repetition, from the framework's own "
            "profiler.",
        ),
        # This option is for comparisons, which measure even if nothing can be profiled.
        click.option("--trace-if-possible", type=options.PATH, hidden=True),
        # This option is for comparisons, which count in one round only.
        click.option("--count", type=click.IntRange(0, MOST), default=REPETITIONS, hidden=True),
        # Its sizes are small, and too small to be counted with.
        click.option("--sizes-chosen", type=click.BOOL, default=False, hidden=True),
        # A process of a comparison loads its framework before its first turn.
        click.option("--only-load", type=click.BOOL, default=False, hidden=True),
        options.path(
            "--timeline",
            "timeline_path",
            "A picture of that repetition, a lane for each queue, as SVG.",
        ),
        options.interpreters,
        options.details,
        click.option(
            "--guess",
            type=options.Parsed(read_guess),
            metavar="10/10|NUMBER" if experiment.counts else "NUMBER",
            help=_about_guesses(experiment),
        ),
        click.option(
            "--explain",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=explain_and_exit,
            help="Say what is asked, how it is measured and how to read it; run nothing.",
        ),
    ]


def _about_guesses(experiment: Experiment) -> str:
    """Return the help of `--guess`, with the figure and the count that may be guessed."""
    figure = f"{experiment.main.name}: {experiment.main.means}."
    if not experiment.counts:
        return f"Your guess, judged beside the answer, of {figure}"
    return (
        f"Your guess, judged beside the answer. 10/10: how many of 10 "
        f"{experiment.counts[0].counted}. A number: {figure}"
    )


def chosen_for(experiment: Experiment, given: Mapping[str, Any]) -> Chosen:
    """Return the choices for which `--explain` explains an experiment's variants.

    `given` are options as they are written. By default the choices are all backends that are
    installed, and the kinds of devices of this machine. Raises RequestError for a backend, a kind
    of devices or an engine that does not exist.
    """
    words = [word.strip() for word in given.get("backend", "").split(",")]
    chosen_backends = tuple(filter(None, words))
    kind, engine = given.get("device_kind", "auto"), given.get("engine")
    for name in chosen_backends:
        compare.refuse_unknown("backend", name, backends.names())
    compare.refuse_unknown("device kind", kind, compare.DEVICE_KINDS)
    if engine is not None:
        compare.refuse_unknown("engine", engine, compare.ENGINES)
    if not chosen_backends:
        chosen_backends = tuple(filter(is_installed, frameworks()))
    kinds = _kinds_of_this_machine() if kind == "auto" else (kind,)
    return Chosen(experiment.settings, chosen_backends, kinds, engine)


def _kinds_of_this_machine() -> tuple[DeviceKind, ...]:
    """Return the kinds of devices of this machine: GPUs are those that the driver lists."""
    cards = ask_driver()
    has_gpus = isinstance(cards, tuple) and len(cards) > 0
    return ("cpu", "gpu") if has_gpus else ("cpu",)
