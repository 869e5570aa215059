"""`parallel-core doctor`: what is installed, what is wrong with it, why, and the command that fixes it."""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from parallel_core.command_line import options
from parallel_core.doctor import Finding
from parallel_core.doctor.examination import Examination, examine
from parallel_core.system import files
from parallel_core.terminal.console import ASIDE, BAD, DOUBTFUL, GOOD
from parallel_core.terminal.layout import show_sentence

MARKS = {
    "fine": Text("✓ fine", GOOD),
    "absent": Text("– absent", ASIDE),
    "doubtful": Text("! doubtful", DOUBTFUL),
    "broken": Text("✗ broken", f"bold {BAD}"),
}
BEFORE_TEXT = 38
"""Columns of a finding's mark and name."""


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
    files.write_json(json_path, examination.as_json())
    show_examination(examination, console, everything)
    ctx.exit(1 if examination.broken else 0)


def show_examination(examination: Examination, console: Console, everything: bool = False) -> None:
    """Print each problem with its command, then what is fine and what is absent in a line each, and whether all works.

    With `everything`, in place of the two lines, each finding by section: a text whose words would be broken beside its
    name stands below it.
    """
    for number, (_, finding) in enumerate(examination.problems, 1):
        cause, command = map(str, finding.cause_and_command.values())
        console.print(Text.assemble(f"{number}. ", MARKS[finding.state], f": {finding.name}"))
        show_sentence(cause, console, bullet=" " * 3)
        # Never broken into lines: it is there to be pasted.
        console.print(f"       {command}", style="bold", soft_wrap=True)
    for state in () if everything else ("fine", "absent"):
        named = [_named(name, findings, state) for name, findings in examination.sections.items()]
        if names := ", ".join(filter(None, named)):
            show_sentence(f"{MARKS[state].plain}: {names}", console)
    for name, findings in examination.sections.items() if everything else ():
        console.print(f"\n{name}", style="bold")
        for finding in findings:
            row = Table.grid(Column(width=10), Column(width=20), Column(), padding=(0, 2, 0, 0))
            beside = max(map(len, finding.text.split()), default=0) <= console.width - BEFORE_TEXT
            row.add_row(MARKS[finding.state], finding.name, finding.text if beside else "")
            console.print(Padding(row, (0, 0, 0, 2), expand=False))
            if not beside:
                show_sentence(finding.text, console, bullet=" " * 6)
    if broken := examination.broken:
        console.print(f"✗ {broken} {'thing is' if broken == 1 else 'things are'} broken.", style=f"bold {BAD}")
    else:
        console.print("✓ All that is installed works.", style=f"bold {GOOD}")


def _named(section: str, findings: Sequence[Finding], state: str) -> str:
    """Name a section if all its findings are in a state and need nothing, else those of them that are."""
    having = [one.name for one in findings if one.state == state and one.diagnosis is None]
    return section if len(having) == len(findings) else ", ".join(having)
