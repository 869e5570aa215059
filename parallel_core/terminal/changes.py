"""Print what changed between recordings of a program, on one screen."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from parallel_core.system.formatting import figure, percent, seconds
from parallel_core.terminal.console import ASIDE
from parallel_core.terminal.layout import show_sentence, show_table, table_of
from parallel_core.terminal.timeline import NOTHING
from parallel_core.traces.account import LEAST, WORDS
from parallel_core.traces.profile.changes import Change, Changes, Exchanges

MAX_OPERATIONS = 5
MAX_REASONS = 2
"""The most reasons that went, or came, on the screen."""


def show_changes(changes: Changes, console: Console) -> None:
    """Print by how much a step differs, what of it, and what it does otherwise."""
    show_sentence(changes.sentence, console, "bold")
    if changes.step is None:
        return
    show_table(_table(changes, changes.step), console)
    for heading, reasons in (("no longer", changes.gone), ("now", changes.come)):
        for row in reasons[:MAX_REASONS]:
            show_sentence(f"{heading}: {row.name}: {row.sentence}", console, bullet="· ")
    if changes.unmatched.share >= LEAST:
        show_sentence(f"{changes.unmatched.in_words}.", console, ASIDE)


def _table(changes: Changes, step: Change) -> Table:
    """Return the table of a step's parts, of its exchanges, and of the operations that changed."""
    table = table_of("", "", "before", "after", "change")
    parts = [part for part in changes.parts if part.before or part.after]
    for part in parts:
        _add_time(table, WORDS[part.name], part)
    _add_time(table, "a step", step)
    table.add_section()
    for row in _rows_of_exchanges(changes):
        table.add_row(*row)
    table.add_section()
    for operation in changes.operations[:MAX_OPERATIONS]:
        numbers = figure(operation.number_before)
        if operation.number_after != operation.number_before:
            numbers += f" → {figure(operation.number_after)}"
        _add_time(table, f"{numbers} × {operation.time.name}", operation.time)
    return table


def _add_time(table: Table, heading: str, change: Change) -> None:
    """Add a row with a time before and after, and the interval of its change."""
    low, high = seconds(change.difference.low), seconds(change.difference.high)
    estimate = seconds(change.difference.estimate)
    table.add_row(
        heading, seconds(change.before), seconds(change.after), f"{estimate} ({low} … {high})"
    )


def _rows_of_exchanges(changes: Changes) -> Iterator[Sequence[str]]:
    """Yield rows of what is counted of exchanges, where it changed."""
    before, after = changes.exchanges_before, changes.exchanges_after
    if before is None or after is None:
        return
    if before.a_step != after.a_step:
        yield "exchanges a step", figure(before.a_step), figure(after.a_step)
    if _early(before) != _early(after):
        yield "launched before the pass is over", _early(before), _early(after)
    if before.hidden_share != after.hidden_share:
        yield "of the exchange is hidden", _share(before), _share(after)


def _early(exchanges: Exchanges) -> str:
    """Write how many exchanges were launched in time: `100 of 120`."""
    if exchanges.early_exchanges is None:
        return NOTHING
    return f"{exchanges.early_exchanges} of {exchanges.exchanges}"


def _share(exchanges: Exchanges) -> str:
    """Write how much of the exchange is hidden."""
    return NOTHING if exchanges.hidden_share is None else percent(exchanges.hidden_share)
