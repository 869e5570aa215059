"""Print several ranks side by side: a row for each if they are few, else a row for each figure with its extremes."""

from collections.abc import Callable, Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from parallel_core.system.formatting import percent, seconds
from parallel_core.terminal.layout import show_sentence, show_table
from parallel_core.trace_analysis.ranks import RankFigures, Ranks, Spread

__all__ = ["show_ranks"]

MAX_ROWS = 8
"""More ranks than these are not listed one by one."""
MEDIAN, SPREAD = "median", "spread"


COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "seconds": ("time", seconds),
    "compute_seconds": ("computing", seconds),
    "communication_seconds": ("communication", seconds),
    "hidden_share": ("hidden", percent),
    "idle_share": ("idle", percent),
    "waited_seconds": ("waited", seconds),
}
"""By figure, what it is called and how it is written."""


def show_ranks(ranks: Ranks, console: Console) -> None:
    """Print the table of several ranks, the straggler, and the notes. Eighty columns are enough."""
    show_table(_rows_of_ranks(ranks) if len(ranks.by_rank) <= MAX_ROWS else _rows_of_figures(ranks), console)
    for sentence in (_straggler(ranks), *ranks.notes):
        show_sentence(sentence, console, bullet="· ")


def _table(ranks: Ranks, *headings: str) -> Table:
    of = f" of {ranks.world_size}" if ranks.world_size not in (None, len(ranks.by_rank)) else ""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = f"{len(ranks.by_rank)} ranks{of}"
    first, *numbers = headings
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _rows_of_ranks(ranks: Ranks) -> Table:
    headings = [heading for heading, _ in COLUMNS.values()]
    table = _table(ranks, "rank", *headings, "last")
    for one in ranks.by_rank:
        is_last_row = one is ranks.by_rank[-1]
        cells = [_cell(getattr(one, figure), figure) for figure in COLUMNS]
        table.add_row(str(one.rank), *cells, _last(one), end_section=is_last_row)
    for name in (MEDIAN, SPREAD):
        spreads = [(figure, ranks.spread.get(figure)) for figure in COLUMNS]
        table.add_row(name, *(_cell(getattr(spread, name, None), figure) for figure, spread in spreads), "")
    return table


def _rows_of_figures(ranks: Ranks) -> Table:
    table = _table(ranks, "", "least", "rank", MEDIAN, "most", "rank", SPREAD)
    for figure, (heading, _) in COLUMNS.items():
        if spread := ranks.spread.get(figure):
            table.add_row(heading, *_extremes(spread, figure))
    return table


def _extremes(spread: Spread, figure: str) -> tuple[str, ...]:
    least, middle, most, apart = (
        _cell(value, figure) for value in (spread.least, spread.median, spread.most, spread.spread)
    )
    return least, str(spread.least_rank), middle, most, str(spread.most_rank), apart


def _cell(value: float | None, figure: str) -> str:
    return "–" if value is None else COLUMNS[figure][1](value)


def _last(one: RankFigures) -> str:
    return f"{one.arrived_last:,}" if one.matched_collectives else "–"


def _straggler(ranks: Ranks) -> str:
    if not ranks.matched_collectives:
        return "no straggler can be named: no collective of all ranks was found"
    if ranks.straggler is None:
        return f"no straggler: in {ranks.matched_collectives:,} collectives all ranks waited about as long"
    (late,) = (one for one in ranks.by_rank if one.rank == ranks.straggler)
    most = max((one for one in ranks.by_rank if one is not late), key=lambda one: one.waited_seconds or 0.0)
    waited = most.waited_seconds or 0.0
    others = "the other waited" if len(ranks.by_rank) == 2 else f"of the others rank {most.rank} waited most,"
    share = f", {percent(waited / most.seconds)} of the time" if most.seconds else ""
    return (
        f"straggler: rank {late.rank} came last in {late.arrived_last:,} of {late.matched_collectives:,} collectives, "
        f"and waited {seconds(late.waited_seconds or 0.0)} in them; {others} {seconds(waited)}{share}"
    )
