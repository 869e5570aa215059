"""Tables and sentences that fit the terminal: no line ends between a number and its unit, and
nothing is cut off.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import NamedTuple, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from parallel_core.system.formatting import visible
from parallel_core.terminal.console import ASIDE

Row = TypeVar("Row")
UNLIMITED = 100_000
MAX_ROWS = 20
"""The most queues or devices that a table lists; the JSON has all of them."""
HELD = re.compile(
    r"(?<=\d) (?=[^\W\d]|[×%=])|(?<=[%)]) (?=×)|(?<=[±×−]) (?=[\d−-])| (?=[…=])|(?<=[…=]) "
)
"""The spaces at which no line ends: after a number, after its sign, within bounds, and around an
equals sign.
"""
HOLDER = "\N{SYMBOL FOR SPACE}"
INDENTED = "  "
GAP = 2
"""The spaces between a heading and the cell beside it."""


def show_sentence(text: str, console: Console, style: str = "", bullet: str = "") -> None:
    """Print a text in lines that end between words; lines after a bullet's first are indented."""
    first, following = bullet, " " * len(bullet)
    for paragraph in visible(text).splitlines():
        lines = wrap(
            HELD.sub(HOLDER, paragraph),
            console.width,
            initial_indent=first,
            subsequent_indent=following,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines or [""]:
            # The terminal breaks words that are longer than its line, so that they can be copied in
            # one piece.
            console.print(Text(line.replace(HOLDER, " "), style), soft_wrap=True)
        first = following


def show_sentences(
    texts: Iterable[str], console: Console, style: str = "", bullet: str = ""
) -> None:
    """Print texts one after the other, as `show_sentence` does."""
    for text in texts:
        show_sentence(text, console, style, bullet)


def table_of(title: str, first: str, *numbers: str, style: str = ASIDE) -> Table:
    """Return an empty table for `show_table`: a first column, and columns of numbers."""
    columns = (Column(heading, justify="right") for heading in numbers)
    return Table(Column(first), *columns, title=title or None, title_style=style)


def busiest(rows: Sequence[Row], work: Callable[[Row], float]) -> list[Row]:
    """Return a table's rows in their order; if they are too many, only those with the most work."""
    if len(rows) <= MAX_ROWS:
        return list(rows)
    numbers_by_work = sorted(range(len(rows)), key=lambda number: -work(rows[number]))
    return [rows[number] for number in sorted(numbers_by_work[:MAX_ROWS])]


def count_rest(table: Table, rows: int) -> None:
    """Add a row with the number of rows that were left out of all `rows`, if any: `(+980)`."""
    left_out = rows - table.row_count
    if left_out > 0:
        table.add_row(f"(+{left_out:,})")


def show_table(table: Table, console: Console) -> None:
    """Print a table within the width of the terminal.

    If it is too wide, cells are wrapped, except in columns that are aligned to the right or marked
    `no_wrap`; then columns move together. If it is still too wide, each row becomes separate lines:
    its first cell, and below it every other cell that is not empty, after its heading. The title is
    wrapped at the terminal's width, and not at the table's. The table is consumed.
    """
    title = table.title
    table.title = None
    if title:
        show_sentence(_text(title).plain, console, str(table.title_style or ""))
    table.box = SIMPLE_HEAD
    table.pad_edge = False
    for right_padding in (2, 1):
        table.padding = (0, right_padding, 0, 0)
        widths = _widths(table, console)
        if widths:
            for column, width in zip(table.columns, widths, strict=True):
                column.width = width
                column.no_wrap = False
            console.print(table)
            return
    _show_records(table, console)


class _ColumnWidths(NamedTuple):
    """The widths of a column, in characters."""

    full: int
    """The width if the heading is one line."""
    whole: int
    """The width if each word of the heading is a line, and cells are not wrapped."""
    least: int
    """The width if each word of the cells that may be wrapped is a line too."""


def _widths_of(column: Column) -> _ColumnWidths:
    """Return the widths that a column needs."""
    heading = _text(column.header).plain
    cells = [_text(cell).plain for cell in column.cells]
    heading_word = _longest_word(HELD.sub(HOLDER, heading))
    cell_line = max(map(_longest_line, cells), default=0)
    cell_word = max(map(_longest_word, cells), default=0)
    keeps_lines = column.no_wrap or column.justify == "right"
    return _ColumnWidths(
        full=max(_longest_line(heading), cell_line),
        whole=max(heading_word, cell_line),
        least=max(heading_word, cell_line if keeps_lines else cell_word),
    )


def _widths(table: Table, console: Console) -> Sequence[int]:
    """Return the widths of the columns with which a table fits the terminal; empty if none do."""
    columns = [_widths_of(column) for column in table.columns]
    full = [column.full for column in columns]
    whole = [column.whole for column in columns]
    least = [column.least for column in columns]
    unlimited = console.options.update(width=UNLIMITED)
    between_columns = Measurement.get(console, unlimited, table).maximum - sum(full)
    room = console.width - between_columns
    if sum(full) <= room:
        return full
    if sum(least) > room:
        return ()
    # Headings are wrapped before cells are.
    if sum(whole) <= room:
        return _widened(whole, full, room)
    return _widened(least, whole, room)


def _widened(widths: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Return widths that fill the room: each character more goes to the column that lacks most."""
    widened = list(widths)
    for _ in range(room - sum(widened)):
        lacking = [
            wanted_width - width for wanted_width, width in zip(wanted, widened, strict=True)
        ]
        widened[lacking.index(max(lacking))] += 1
    return widened


def _longest_line(text: str) -> int:
    """Return the length of a text's longest line."""
    return max(map(len, text.split("\n")))


def _longest_word(text: str) -> int:
    """Return the length of a text's longest word."""
    return max(map(len, text.split()), default=0)


def _text(cell: RenderableType) -> Text:
    """Return the text of a cell."""
    if isinstance(cell, Text):
        return cell
    return Text(visible(str(cell)))


def _show_records(table: Table, console: Console) -> None:
    """Print each row as its first cell, and below it the other cells after their headings."""
    columns = list(table.columns)
    first, *headings = (" ".join(_text(column.header).plain.split()) for column in columns)
    if len(headings) == 1:
        # A table of names and values needs no headings.
        first = ""
        headings = [""]
    for name, *row in zip(*(column.cells for column in columns), strict=True):
        show_sentence(_joined(": ", first, _text(name).plain), console, "bold")
        record = []
        for heading, cell in zip(headings, row, strict=True):
            in_one_line = Text("; ").join(_text(cell).split("\n"))
            if in_one_line.plain.strip():
                record.append((heading, in_one_line))
        if record:
            _show_record(record, console)


def _show_record(record: Sequence[tuple[str, Text]], console: Console) -> None:
    """Print headings and cells on one line, if they fit, or else on a line for each heading."""
    named = [Text(f"{heading} ".lstrip()).append_text(cell) for heading, cell in record]
    joined = Text(INDENTED) + Text(", ").join(named)
    longest_heading = max(len(heading) for heading, _ in record)
    longest_word = max(_longest_word(cell.plain) for _, cell in record)
    if len(joined) <= console.width:
        console.print(joined)
    elif len(INDENTED) + longest_heading + GAP + longest_word <= console.width:
        grid = Table.grid(Column(no_wrap=True), Column(), padding=(0, GAP, 0, 0))
        for heading, cell in record:
            grid.add_row(f"{INDENTED}{heading}" if heading else "", cell)
        console.print(grid)
    else:
        for heading, cell in record:
            show_sentence(_joined(" ", heading, cell.plain), console, bullet=INDENTED)


def _joined(separator: str, *texts: str) -> str:
    """Join the texts that are not empty."""
    return separator.join(filter(None, texts))
