"""Tables and sentences that fit the terminal: no number is parted from its unit, and nothing is cut
off.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import TypeVar

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
    title, table.title = table.title, None
    if title:
        show_sentence(_text(title).plain, console, str(table.title_style or ""))
    for padding in ((0, 2, 0, 0), (0, 1, 0, 0)):
        table.box, table.pad_edge, table.padding = SIMPLE_HEAD, False, padding
        if widths := _widths(table, console):
            for column, width in zip(table.columns, widths, strict=True):
                column.width, column.no_wrap = width, False
            console.print(table)
            return
    _show_records(table, console)


def _widths(table: Table, console: Console) -> Sequence[int]:
    """Return a width for each column with which the table fits; none if there are none."""
    full, whole, least = [], [], []
    for column in table.columns:
        header, cells = _text(column.header).plain, [_text(cell).plain for cell in column.cells]
        word, line = (
            _longest_word(HELD.sub(HOLDER, header)),
            max(map(_longest_line, cells), default=0),
        )
        is_kept = column.no_wrap or column.justify == "right"
        full.append(max(_longest_line(header), line))
        whole.append(max(word, line))
        least.append(max(word, line if is_kept else max(map(_longest_word, cells), default=0)))
    options = console.options.update(width=UNLIMITED)
    room = console.width - (Measurement.get(console, options, table).maximum - sum(full))
    if sum(full) <= room:
        return full
    if sum(least) > room:
        return ()
    # Headings are broken into lines before cells are.
    widths, wanted = (whole, full) if sum(whole) <= room else (least, whole)
    for _ in range(room - sum(widths)):
        missing = [most - width for most, width in zip(wanted, widths, strict=True)]
        widths[missing.index(max(missing))] += 1
    return widths


def _longest_line(text: str) -> int:
    return max(map(len, text.split("\n")))


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(visible(str(cell)))


def _show_records(table: Table, console: Console) -> None:
    first, *headings = (" ".join(_text(column.header).plain.split()) for column in table.columns)
    if len(headings) == 1:
        # Of a name and its value both headings are idle.
        first, headings = "", [""]
    for name, *row in zip(*(column.cells for column in table.columns), strict=True):
        show_sentence(": ".join(filter(None, (first, _text(name).plain))), console, "bold")
        cells = (Text("; ").join(_text(cell).split("\n")) for cell in row)
        if pairs := [pair for pair in zip(headings, cells, strict=True) if pair[1].plain.strip()]:
            _show_record(pairs, console)


def _show_record(pairs: Sequence[tuple[str, Text]], console: Console) -> None:
    """Print headings and cells on one line if they fit; else on a line each, cells beside each
    other if they fit.
    """
    joined = Text(", ").join(
        Text(f"{heading} ".lstrip()).append_text(cell) for heading, cell in pairs
    )
    beside = max((len(heading) for heading, _ in pairs), default=0) + len("    ")
    if len(joined) + len("  ") <= console.width:
        console.print(Text("  ") + joined)
    elif beside + max(_longest_word(cell.plain) for _, cell in pairs) <= console.width:
        record = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
        for heading, cell in pairs:
            record.add_row(f"  {heading}" if heading else "", cell)
        console.print(record)
    else:
        for heading, cell in pairs:
            show_sentence(" ".join(filter(None, (heading, cell.plain))), console, bullet="  ")
