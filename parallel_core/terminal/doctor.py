"""What a person reads of an examination: the problems and what to do, what is fine in a line; or a line for each."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from parallel_core.doctor import Examination, Section
from parallel_core.terminal.console import ASIDE, BAD, DOUBTFUL, GOOD
from parallel_core.terminal.layout import show_sentence

__all__ = ["show_section", "show_summary"]

MARKS = {
    "fine": f"[{GOOD}]✓ fine[/]",
    "absent": f"[{ASIDE}]– absent[/]",
    "doubtful": f"[{DOUBTFUL}]! doubtful[/]",
    "broken": f"[bold {BAD}]✗ broken[/]",
}


BEFORE_TEXT = 38
"""Columns of a finding's mark and name."""


def show_section(section: Section, console: Console) -> None:
    """Print a section: each finding's state as a mark and a word, its name and its text.

    A text whose words would be broken beside its name stands below it.
    """
    console.print(f"\n[bold]{escape(section.name)}[/]")
    for finding in section.findings:
        row = Table.grid(Column(width=10), Column(width=20), Column(), padding=(0, 2, 0, 0))
        beside = max(map(len, finding.text.split()), default=0) <= console.width - BEFORE_TEXT
        row.add_row(MARKS[finding.state], escape(finding.name), escape(finding.text) if beside else "")
        console.print(Padding(row, (0, 0, 0, 2), expand=False))
        if not beside:
            show_sentence(finding.text, console, bullet=" " * 6)


def show_summary(examination: Examination, console: Console) -> None:
    """Print each problem with its command, then in a line each what is fine and what absent, and whether all works."""
    for number, (_, finding) in enumerate(examination.problems, 1):
        cause, command = map(str, finding.cause_and_command.values())
        console.print(f"{number}. {MARKS[finding.state]}: {escape(finding.name)}")
        show_sentence(cause, console, bullet=" " * 3)
        # Never broken into lines: it is there to be pasted.
        console.print(f"       {escape(command)}", style="bold", soft_wrap=True)
    for state in ("fine", "absent"):
        named = [_named(section, state) for section in examination.sections]
        if names := ", ".join(filter(None, named)):
            show_sentence(f"{Text.from_markup(MARKS[state]).plain}: {names}", console)
    if broken := examination.broken:
        console.print(f"✗ {broken} {'thing is' if broken == 1 else 'things are'} broken.", style=f"bold {BAD}")
    else:
        console.print("✓ All that is installed works.", style=f"bold {GOOD}")


def _named(section: Section, state: str) -> str:
    """Name a section if all its findings are in a state and need nothing, else those of them that are."""
    having = [one.name for one in section.findings if one.state == state and one.diagnosis is None]
    return section.name if len(having) == len(section.findings) else ", ".join(having)
