"""`parallel-core run EXPERIMENT`: a command for each experiment, which is run on one backend or on several in turns."""

from collections.abc import Callable
from typing import Any

import click

from backends.errors import unknown
from parallel_core.command_line import options
from parallel_core.command_line.run.chosen import chosen_for
from parallel_core.command_line.run.one_backend import run_on_one_backend
from parallel_core.command_line.run.resources import parameter_options, resource_options
from parallel_core.command_line.run.side_by_side import run_side_by_side
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.explanation import explanation
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.explanation import show_explanation, show_variants

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
        """Keep what is given as it is written: for other processes, and --explain, called before the rest is read."""
        ctx.meta[GIVEN] = self.make_parser(ctx).parse_args(list(args))[0]
        return super().parse_args(ctx, args)


@click.group("run", cls=_ExperimentGroup)
def run() -> None:
    """Run one experiment on one backend."""


def _command_of(experiment: Experiment) -> click.Command:
    """Make an experiment's command: the options that all share, then its parameters, its resources, and the rounds."""

    def explain_and_exit(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            console = terminal_console()
            show_explanation(explanation(experiment), console)
            show_variants(console, chosen_for(experiment, ctx.meta[GIVEN]))
            ctx.exit()

    shared = [
        *_shared_options(experiment),
        click.option(
            "--explain",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=explain_and_exit,
            help="Say what is asked, how it is measured and how to read it; run nothing.",
        ),
    ]
    own = [
        *parameter_options([one for one in experiment.parameters if one.name != "rounds"]),
        *([options.work] if experiment.calibrated else []),
        *resource_options(experiment.program),
        *parameter_options([one for one in experiment.parameters if one.name == "rounds"]),
    ]

    @click.pass_context
    def command(ctx: click.Context, /, **values: Any) -> None:
        if "," in values["backend"]:
            run_side_by_side(experiment, ctx, ctx.meta[GIVEN])
            return
        of_all = {name: values.pop(name) for name in list(values) if name in SHARED}
        run_on_one_backend(experiment, of_all, values, ctx.obj)

    decorated: Any = command
    for option in reversed([*shared, *own]):
        decorated = option(decorated)
    words = {"help": experiment.question, "short_help": experiment.summary}
    return click.command(experiment.name, cls=_ExperimentCommand, **words)(decorated)


SHARED = (
    *("backend", "engine", "devices", "device_kind", "threads", "workers", "variants", "json_path", "plot_path"),
    *("trace_path", "trace_if_possible", "timeline_path", "interpreters", "guess", "work"),
)
"""The values of `_shared_options`, and of the one that says where sizes come from."""


def _shared_options(experiment: Experiment) -> list[Callable[[Any], Any]]:
    """List the options of every experiment's command, in the order of its help."""
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
    ]
