"""The option `--require` of commands that read recordings, and the exit status that it decides."""

from collections.abc import Sequence

import click
from rich.console import Console

from parallel_core.command_line import options
from parallel_core.measurement.limits import parse_limit
from parallel_core.system.errors import DISTURBED, FAILED
from parallel_core.terminal.layout import show_sentences
from parallel_core.traces.profile.requirements import FIGURES, UNITS, Requirement

STATUS = {"holds": 0, "broken": FAILED, "open": DISTURBED}

limits = click.option(
    "--require",
    "limits",
    type=options.Parsed(lambda text: parse_limit(text, UNITS), "limit"),
    multiple=True,
    help="A limit that must hold, such as 'hidden exchange >= 80 %' (names: parallel-core trace "
    "--figures). Exit status: 1 if one is broken, else 3 if one is not decided. Repeatable.",
)


def status_of(requirements: Sequence[Requirement]) -> int:
    """Return the exit status: of a broken limit, else of an open one, else 0."""
    verdicts = {requirement.verdict for requirement in requirements}
    for verdict in ("broken", "open"):
        if verdict in verdicts:
            return STATUS[verdict]
    return STATUS["holds"]


def show_requirements(requirements: Sequence[Requirement], console: Console) -> None:
    """Print what is said of each limit."""
    show_sentences([requirement.sentence for requirement in requirements], console, bullet="· ")


def list_figures(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    """Print the names, units and meanings of the figures that a limit may name, and exit."""
    if not is_wanted:
        return
    longest = max(map(len, FIGURES))
    for name, figure in FIGURES.items():
        click.echo(f"{name:{longest}}  {figure.unit:7}  {figure.says}")
    context.exit()


figures = click.option(
    "--figures",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_figures,
    help="List the figures that --require may name, and exit.",
)
