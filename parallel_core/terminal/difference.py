"""A difference between two comparisons in the terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parallel_core.comparison.difference import Difference
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.terminal.comparison import VERDICT_COLOURS, factors_in_figures, verdicts_in_colour

__all__ = ["show_difference"]


def show_difference(difference: Difference, console: Console) -> None:
    """Print the cases that were shown to have changed, and count the others."""
    for sentence in difference.environment_changes:
        console.print(f"· {escape(sentence)}", style="dim")
    changed = [change for change in difference.changes if change.verdict in VERDICT_COLOURS]
    if changed:
        table = Table("cell", "case", "new / old time", "= kernels\n× scheduling", "")
        for change in changed:
            names = escape(str(change.cell)), escape(change.case)
            table.add_row(*names, with_bounds(change.ratio), factors_in_figures(change), verdicts_in_colour(change))
        console.print(table)
    for sentence in difference.left_out:
        console.print(f"· left out: {escape(sentence)}", style="dim")
    count = len(difference.changes)
    unknown = sum(change.verdict == "too few runs" for change in difference.changes)
    too_few = f", too few runs to tell in {unknown}" if unknown else ""
    console.print(
        f"{count} cases compared: {len(changed)} changed, "
        f"no difference shown in {count - len(changed) - unknown}{too_few}.",
        style="bold",
    )
    console.print(
        f"By chance alone up to {max(1, round(count / 20))} of them may be called changed; and no interval covers what "
        "else the machine did at the two times.",
        style="dim",
    )
