"""`parallel-core run EXPERIMENT`: a command for each experiment, on one backend or on several in
turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click

import backends
from backends.devices import DeviceKind
from backends.installation.frameworks import is_installed
from backends.registry.variants import frameworks
from parallel_core.command_line import compare, options
from parallel_core.command_line.commands import Commands
from parallel_core.command_line.run.one_backend import refuse, run_alone, run_as_rank
from parallel_core.command_line.run.side_by_side import run_side_by_side
from parallel_core.doctor.gpus import ask_driver
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.explanation import about_unknown, explanation
from parallel_core.jobs.rank import check_job
from parallel_core.run.options import options_of, request_of
from parallel_core.system.errors import RequestError
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.explanation import Chosen, show_explanation, show_variants

GIVEN = "parallel_core.given"
"""The key under which a command's context keeps the options that the user gave."""
Interpreters = tuple[tuple[str, str], ...]
"""Backends, each with the Python that runs it."""


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
    """An experiment's command, which knows its options as they are written."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the given options as they are written, for other processes and for --explain."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[GIVEN] = given
        return super().parse_args(ctx, args)


@click.group("run", cls=_ExperimentGroup)
def run() -> None:
    """Run one experiment on one backend."""


def _command_of(experiment: Experiment) -> click.Command:
    """Make an experiment's command."""

    @click.pass_context
    def command(
        ctx: click.Context, /, explain: bool, interpreters: Interpreters, **values: Any
    ) -> None:
        if explain:
            chosen = chosen_for(experiment, ctx.meta[GIVEN])
            console = terminal_console()
            show_explanation(explanation(experiment), console)
            show_variants(console, chosen)
            return
        request = request_of(experiment, values, ctx.meta[GIVEN])
        if "," in request.work.backend:
            run_side_by_side(request, interpreters)
            return
        if interpreters:
            raise RequestError(
                "--python is for several backends side by side: a single one runs in this Python"
            )
        refuse(request)
        where = check_job(experiment.name, request.work.backend)
        if where is None:
            run_alone(request)
        else:
            run_as_rank(request, where)

    decorated: Any = command
    for add_option in (
        click.option(
            "--explain",
            is_flag=True,
            help="Say what is asked, how it is measured and how to read it; run nothing.",
        ),
        options.interpreters,
        *reversed([*options_of(experiment)]),
    ):
        decorated = add_option(decorated)
    return click.command(experiment.name, cls=_ExperimentCommand, help=experiment.question)(
        decorated
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
