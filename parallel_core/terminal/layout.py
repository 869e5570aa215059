"""Tables and sentences that fit the terminal: no number is parted from its unit, and nothing is cut
off.
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
"""The number of queues or devices that a table lists; the JSON has all."""
HELD = re.compile(
    r"(?<=\d) (?=[^\W\d]|[×%=])|(?<=[%)]) (?=×)|(?<=[±×−]) (?=[\d−-])| (?=[…=])|(?<=[…=]) "
)
"""The spaces at which no line ends: after a number, after its sign, within bounds, and around an
equals sign.
"""
HOLDER = "\N{SYMBOL FOR SPACE}"
INDENTED = "  "
GAP = 2
"""Between a heading and the cell beside it."""


def show_sentence(text: str, console: Console, style: str = "", bullet: str = "") -> None:
    """Print text in lines that end between words; lines after a bullet are set in."""
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
            # Words longer than the terminal are left to it, so that they can be copied in one
            # piece.
            console.print(Text(line.replace(HOLDER, " "), style), soft_wrap=True)
        first = following


def show_sentences(
    texts: Iterable[str], console: Console, style: str = "", bullet: str = ""
) -> None:
    """Print each of some texts by `show_sentence`."""
    for text in texts:
        show_sentence(text, console, style, bullet)


def table_of(title: str, first: str, *numbers: str, style: str = ASIDE) -> Table:
    """Return a table for `show_table` of what the first heading names, with numbers under the
    rest.
    """
    columns = (Column(heading, justify="right") for heading in numbers)
    return Table(Column(first), *columns, title=title or None, title_style=style)


def busiest(rows: Sequence[Row], work: Callable[[Row], float]) -> list[Row]:
    """Return a table's rows, in their order: those that worked most if they are too many."""
    if len(rows) <= MAX_ROWS:
        return list(rows)
    by_work = sorted(range(len(rows)), key=lambda place: -work(rows[place]))
    return [rows[place] for place in sorted(by_work[:MAX_ROWS])]


def count_rest(table: Table, rows: int) -> None:
    """Add a row that counts those left out, if a table shows fewer than all `rows`: `(+980)`."""
    if rows > table.row_count:
        table.add_row(f"(+{rows - table.row_count:,})")


def show_table(table: Table, console: Console) -> None:
    """Print a table; cells of columns that are aligned to the right or not wrapped keep their
    lines, the rest may wrap.

    Where that is wider than the terminal, columns move together, and then each row becomes separate
    lines: its first cell, and below it each other cell that is not empty, after its heading. The
    title is wrapped at the terminal's width, and not at the table's. The table is consumed.
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
    """How many characters wide a column is."""

    full: int
    """With its heading in one line."""
    whole: int
    """With its heading in as many lines as it has words, and cells in their own lines."""
    least: int
    """With each cell that may wrap in as many lines as it has words, too."""


def _widths_of(column: Column) -> _ColumnWidths:
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
    """Return a width for each column with which the table fits; none if there are none."""
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
    # Headings are broken into lines before cells are.
    if sum(whole) <= room:
        return _widened(whole, full, room)
    return _widened(least, whole, room)


def _widened(widths: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Return widths that fill the room: a character at a time goes to who lacks most."""
    given = list(widths)
    for _ in range(room - sum(given)):
        missing = [most - width for most, width in zip(wanted, given, strict=True)]
        given[missing.index(max(missing))] += 1
    return given


def _longest_line(text: str) -> int:
    return max(map(len, text.split("\n")))


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(visible(str(cell)))


def _show_records(table: Table, console: Console) -> None:
    """Print each row as its first cell, and below it the others after their headings."""
    columns = list(table.columns)
    first, *headings = (" ".join(_text(column.header).plain.split()) for column in columns)
    if len(headings) == 1:
        # Of a name and its value both headings are idle.
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
    """Print headings and cells on one line if they fit; else on a line each, cells beside each
    other if they fit.
    """
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
