"""What a person sees of a difference between two comparisons."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parallel_core.comparison.difference import Difference
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.terminal.comparison import COLOURS

__all__ = ["show_difference"]


def show_difference(found: Difference, console: Console) -> None:
    """Print the cases that were shown to have changed, and count the others."""
    for told in found.surroundings:
        console.print(f"· {escape(told)}", style="dim")
    shown = [change for change in found.changes if change.verdict in COLOURS]
    if shown:
        made = Table("cell", "case", "new time / old time", "")
        for change in shown:
            colour = COLOURS[change.verdict]
            made.add_row(
                escape(str(change.cell)),
                escape(change.case),
                with_bounds(change.ratio),
                f"[{colour}]{change.verdict}[/]",
            )
        console.print(made)
    for told in found.left_out:
        console.print(f"· left out: {escape(told)}", style="dim")
    few = sum(change.verdict == "too few runs" for change in found.changes)
    same = len(found.changes) - len(shown) - few
    too_few = f", too few runs to tell in {few}" if few else ""
    console.print(
        f"{len(found.changes)} cases compared: {len(shown)} changed, no difference shown in {same}{too_few}.",
        style="bold",
    )
    console.print(
        f"By chance alone up to {max(1, round(len(found.changes) / 20))} of them may be called changed; and what the "
        "machine did otherwise at the two times is in no interval.",
        style="dim",
    )
