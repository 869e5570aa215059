"""What a person reads of an examination: a line for each thing that was looked at, and what to do."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table

from parallel_core.doctor import Examination, Section

__all__ = ["show_section", "show_summary"]

MARKS = {
    "fine": "[green]✓ fine[/]",
    "absent": "[dim]– absent[/]",
    "doubtful": "[yellow]! doubtful[/]",
    "broken": "[bold red]✗ broken[/]",
}


def show_section(section: Section, console: Console) -> None:
    """Print a section: each finding's state as a mark and a word, its name and its text."""
    rows = Table.grid(Column(width=10), Column(width=20), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for finding in section.findings:
        rows.add_row(MARKS[finding.state], escape(finding.name), escape(finding.text))
    console.print(f"\n[bold]{escape(section.name)}[/]")
    console.print(Padding(rows, (0, 0, 0, 2), expand=False))


def show_summary(examination: Examination, console: Console) -> None:
    """Print what to do, each cause with its command on a line of its own, and whether all that is installed works."""
    if examination.problems:
        console.print("\n[bold]What to do[/]")
    for number, (section, finding) in enumerate(examination.problems, 1):
        cause, command = (escape(str(text)) for text in finding.cause_and_command.values())
        console.print(f"{number}. {MARKS[finding.state]}: {escape(section)}, {escape(finding.name)}")
        console.print(Padding(cause, (0, 0, 0, 3), expand=False))
        # Never broken into lines: it is there to be pasted.
        console.print(f"       {command}", style="bold", soft_wrap=True)
    if broken := examination.broken:
        console.print(f"\n✗ {broken} {'thing is' if broken == 1 else 'things are'} broken.", style="bold red")
    else:
        console.print("\n✓ All that is installed works.", style="bold green")
