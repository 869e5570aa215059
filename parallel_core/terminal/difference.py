"""A difference between two comparisons in the terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from parallel_core.comparison.answers import reasons_in_words
from parallel_core.comparison.difference import Difference
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.terminal.comparison import VERDICT_COLOURS
from parallel_core.terminal.console import ASIDE
from parallel_core.terminal.layout import show_sentence, show_table

__all__ = ["show_difference"]


def show_difference(difference: Difference, console: Console) -> None:
    """Print the cases that were shown to have changed, and count the others."""
    for sentence in difference.environment_changes:
        show_sentence(sentence, console, ASIDE, bullet="· ")
    changed = [change for change in difference.changes if change.verdict in VERDICT_COLOURS]
    if changed:
        table = Table("cell", "case", Column("new / old time", no_wrap=True), "verdict", "why")
        for change in changed:
            names = escape(str(change.cell)), escape(change.case)
            verdict = f"[{VERDICT_COLOURS[change.verdict]}]{change.verdict}[/]"
            table.add_row(*names, with_bounds(change.ratio), verdict, reasons_in_words(change.difference))
        show_table(table, console)
    for one in difference.meanings:
        was, is_now = (band.says if band else "Inconclusive" for band in (one.old, one.new))
        show_sentence(f"{one.cell}, {one.metric}: {was} → {is_now}", console, bullet="· ")
    for sentence in difference.left_out:
        show_sentence(f"left out: {sentence}", console, ASIDE, bullet="· ")
    count = len(difference.changes)
    unknown = sum(change.verdict == "too few runs" for change in difference.changes)
    too_few = f", too few runs to tell in {unknown}" if unknown else ""
    show_sentence(
        f"{count} cases compared: {len(changed)} changed, "
        f"no difference shown in {count - len(changed) - unknown}{too_few}.",
        console,
        "bold",
    )
    show_sentence(
        f"By chance alone up to {max(1, round(count / 20))} of them may be called changed; and no interval covers what "
        "else the machine did at the two times.",
        console,
        ASIDE,
    )
