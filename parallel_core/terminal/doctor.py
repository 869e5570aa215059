"""What a person sees of a diagnosis: a line for each thing that was looked at, and what to do."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from parallel_core.doctor import Examination, Section

__all__ = ["show_section", "show_summary"]

MARKS = {"fine": "✓ fine", "absent": "– absent", "doubtful": "! doubtful", "broken": "✗ broken"}
STYLES = {"fine": "green", "absent": "dim", "doubtful": "yellow", "broken": "bold red"}
MARK_WIDTH = 10
NAME_WIDTH = 20


def show_section(section: Section, console: Console) -> None:
    """Print a section: of each finding its state as a mark and a word, its name and what was found."""
    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(width=MARK_WIDTH)
    rows.add_column(width=NAME_WIDTH)
    rows.add_column(overflow="fold")
    for finding in section.findings:
        mark = f"[{STYLES[finding.state]}]{MARKS[finding.state]}[/]"
        rows.add_row(mark, escape(finding.name), escape(finding.text))
    console.print(f"\n[bold]{escape(section.name)}[/]")
    console.print(Padding(rows, (0, 0, 0, 2), expand=False))


def show_summary(diagnosis: Examination, console: Console) -> None:
    """Print what to do, each cause with its command on a line of its own, and whether all that is installed works."""
    problems = diagnosis.problems
    if problems:
        console.print("\n[bold]What to do[/]")
    for number, (section, finding) in enumerate(problems, 1):
        if finding.advice is None:
            continue
        state = f"[{STYLES[finding.state]}]{MARKS[finding.state]}[/]"
        console.print(f"{number}. {state}: {escape(section)}, {escape(finding.name)}")
        console.print(Padding(escape(finding.advice.cause), (0, 0, 0, 3), expand=False))
        # Never broken into lines: it is there to be pasted.
        console.print(f"       {escape(finding.advice.command)}", style="bold", soft_wrap=True)
    broken = sum(finding.state == "broken" for section in diagnosis.sections for finding in section.findings)
    if broken:
        console.print(f"\n✗ {broken} {'thing is' if broken == 1 else 'things are'} broken.", style="bold red")
    else:
        console.print("\n✓ All that is installed works.", style="bold green")
