"""`parallel-core doctor`: the frameworks that work, and what is broken, with the commands that
repair it.
"""

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from backends.registry import title
from parallel_core.command_line import options
from parallel_core.doctor import Finding, FindingState
from parallel_core.doctor.examination import Examination, examine
from parallel_core.system import files
from parallel_core.system.formatting import listed
from parallel_core.terminal.console import ASIDE, BAD, DOUBTFUL, GOOD
from parallel_core.terminal.layout import show_sentence

MARKS: dict[FindingState, tuple[str, str]] = {
    "fine": ("✓", GOOD),
    "absent": ("-", ASIDE),
    "doubtful": ("!", DOUBTFUL),
    "broken": ("✗", BAD),
}
"""The mark and the colour of each state."""
COMMAND_COLUMN = 32
"""The column of a command that is printed behind a short cause."""


@click.command()
@options.option(
    "--deadline",
    type=options.NUMBER,
    default="60",
    help="Seconds that a framework may take to be imported and to compute something small.",
)
@click.option("--all", "everything", is_flag=True, help="Also show all that was examined.")
@options.json_file
@click.pass_context
def doctor(ctx: click.Context, deadline: float, everything: bool, json_path: Path | None) -> None:
    """Show which frameworks work here, what is broken, and how to repair it.

    The exit status is 0 if all that is installed works, and 1 if something does not or no framework
    can be used.
    """
    files.check_outputs(json_path)
    console = options.console_beside(json_path)
    with console.status("trying the frameworks"):
        examination = examine(deadline)
    files.write_json(json_path, examination.as_json())
    show_examination(examination, console, everything)
    ctx.exit(1 if examination.broken else 0)


def show_examination(examination: Examination, console: Console, everything: bool = False) -> None:
    """Print the answer in a sentence, and each problem with its command.

    With `everything`, print all findings by section after that.
    """
    colour = BAD if examination.broken else GOOD
    show_sentence(_answer(examination), console, f"bold {colour}")
    for _, finding in examination.problems:
        _show_problem(finding, console)
    if not everything:
        return
    for section, findings in examination.sections.items():
        show_sentence(f"\n{section}", console, "bold")
        for finding in findings:
            mark, _ = MARKS[finding.state]
            show_sentence(f"{title(finding.name)}: {finding.text}", console, bullet=f"{mark}  ")


def _answer(examination: Examination) -> str:
    """Name the frameworks that work, and count what is broken."""
    working = listed(examination.working) if examination.working else "No framework"
    verb = "work" if len(examination.working) > 1 else "works"
    if examination.broken == 0:
        broken_things = "Nothing is"
    elif examination.broken == 1:
        broken_things = "1 thing is"
    else:
        broken_things = f"{examination.broken} things are"
    return f"{working} {verb}. {broken_things} broken."


def _show_problem(finding: Finding, console: Console) -> None:
    """Print a finding's cause, and its command in one line, so that it can be pasted."""
    if finding.diagnosis is None:
        return
    mark, colour = MARKS[finding.state]
    cause, command = finding.diagnosis.cause, finding.diagnosis.command
    sentence = f"{cause}:" if command else f"{cause}."
    beginning = f"{mark}  {sentence} ".ljust(COMMAND_COLUMN)
    fits_column = len(beginning) == COMMAND_COLUMN
    fits_line = len(beginning + command) <= console.width
    if command and fits_column and fits_line:
        console.print(Text.assemble((beginning, colour), (command, "bold")), soft_wrap=True)
        return
    show_sentence(sentence, console, colour, bullet=f"{mark}  ")
    if command:
        console.print(Text(f"   {command}", "bold"), soft_wrap=True)
