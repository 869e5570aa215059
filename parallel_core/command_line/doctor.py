"""`parallel-core doctor`: what is installed, what is wrong with it, why, and the command that fixes it."""

from pathlib import Path

import click

from parallel_core.command_line import options
from parallel_core.doctor.examination import examine
from parallel_core.system import files
from parallel_core.terminal.doctor import show_examination


@click.command()
@options.option(
    "--deadline",
    type=options.NUMBER,
    default="60",
    help="Seconds that a framework may take to be imported and to compute something small.",
)
@click.option("--all", "everything", is_flag=True, help="Show all that was looked at, a line each.")
@options.json_file
@click.pass_context
def doctor(ctx: click.Context, deadline: float, everything: bool, json_path: Path | None) -> None:
    """Show what is wrong here, and how to repair it.

    The exit status is 0 if all that is installed works, and 1 if something does not or no framework can be used.
    """
    files.check_outputs(json_path)
    console = options.console_beside(json_path)
    with console.status("trying the frameworks"):
        examination = examine(deadline)
    if json_path is not None:
        files.write_json(json_path, examination.as_json())
    show_examination(examination, console, everything)
    ctx.exit(1 if examination.broken else 0)
