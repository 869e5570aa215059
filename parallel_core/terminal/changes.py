"""Print what changed between recordings of a program, on a screen of 24 lines."""

from rich.console import Console
from rich.table import Table

from parallel_core.measurement.confidence_intervals import with_seconds
from parallel_core.system.formatting import figure, percent, seconds
from parallel_core.system.machine import WORTH_SAYING
from parallel_core.terminal.console import ASIDE
from parallel_core.terminal.layout import show_sentence, show_table, table_of
from parallel_core.terminal.timeline import NOTHING
from parallel_core.traces.account import WORDS
from parallel_core.traces.profile.changes import Change, Changes
from parallel_core.traces.profile.recorded_steps import Side

MAX_OPERATIONS = 3
"""The most operations that are listed; the JSON has all of them."""


def show_changes(changes: Changes, console: Console) -> None:
    """Print by how much a step differs, what of it, and what it does otherwise."""
    show_sentence(changes.sentence, console, "bold")
    if changes.step is None:
        return
    if changes.counted:
        counted = ", ".join(change.in_words for change in changes.counted[:MAX_OPERATIONS])
        show_sentence(f"By count, in a step: {counted}.", console)
    show_table(_table(changes, changes.step), console)
    for heading, reasons in (("no longer", changes.gone), ("now", changes.come)):
        for row in reasons[:1]:
            show_sentence(f"{heading}: {row.name}: {row.sentence}", console, bullet="· ")
    waited_before, waited_after = changes.before.core_wait_share, changes.after.core_wait_share
    if abs(waited_after - waited_before) >= WORTH_SAYING:
        sentence = (
            f"For {percent(waited_before)} of the time before, and {percent(waited_after)} after, "
            "the busiest thread waited for a core: intervals allow for it."
        )
        show_sentence(sentence, console, ASIDE)


def _table(changes: Changes, step: Change) -> Table:
    """Return the table of a step's parts, of its exchanges, and of the operations that changed."""
    table = table_of("", "", "before", "after", "change")
    for part in changes.parts:
        if part.before or part.after:
            _add_time(table, WORDS[part.name], part)
    _add_time(table, "a step", step)
    hidden_before, hidden_after = map(_hidden, (changes.before, changes.after))
    if hidden_before != hidden_after:
        table.add_row("hidden exchange", hidden_before, hidden_after)
    for operation in changes.operations[:MAX_OPERATIONS]:
        numbers = figure(operation.number_before)
        if operation.number_after != operation.number_before:
            numbers += f" → {figure(operation.number_after)}"
        _add_time(table, f"{numbers} × {operation.time.name}", operation.time)
    return table


def _add_time(table: Table, label: str, change: Change) -> None:
    """Add a row with a time before and after, and the interval of its change."""
    difference = with_seconds(change.difference)
    table.add_row(label, seconds(change.before), seconds(change.after), difference)


def _hidden(side: Side) -> str:
    """Return the share of a side's exchange that is hidden, as it is written."""
    share = side.hidden_exchange_share
    return NOTHING if share is None else percent(share)
