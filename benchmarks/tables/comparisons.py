"""What `compare` gave, and how often it is wrong about cells that are compared with themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backends.registry import title
from benchmarks.harness.planted_faults import HEADINGS, counts
from benchmarks.harness.provenance import provenance_of_comparison
from benchmarks.self_test import COLUMNS, Rates
from benchmarks.tables.markdown import read_json, source_of, table
from parallel_core.comparison.analysis import CellAnalysis, ExperimentAnalysis, analyse
from parallel_core.comparison.answers import difference_in_words, reasons_in_words
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.screen import screen_of
from parallel_core.comparison.storage import read_comparison
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.system.formatting import seconds

__all__ = ["comparison", "comparison_answer", "comparison_differences", "planted_faults", "wrong_verdicts"]


def comparison(folder: Path) -> str:
    """Give a row to each cell of a comparison, with its difference from the first one, and why."""
    measured = read_comparison(folder)
    rows = [row for experiment in analyse(measured).experiments for row in _rows_of(experiment)]
    headings = ["experiment: case, figure", "cell", "time", "figure", "against the first", "why"]
    return table(headings, rows, _source(folder, measured))


def comparison_answer(folder: Path) -> str:
    """Give the table of questions by frameworks."""
    measured = read_comparison(folder)
    screen = screen_of(analyse(measured))
    rows = [[question, *figures] for question, figures in screen.rows]
    return table(["", *(column.title for column in screen.columns)], rows, _source(folder, measured))


def comparison_differences(folder: Path) -> str:
    """Give a row to each experiment and framework: how much longer than another it took, and why."""
    measured = read_comparison(folder)
    rows = [
        [compared, row.what, row.difference, row.why]
        for compared, some in screen_of(analyse(measured)).differences.items()
        for row in some
    ]
    return table(["", "experiment: case", "time", "why"], rows, _source(folder, measured))


def _source(folder: Path, measured: Comparison) -> str:
    text = f"[All of it]({folder / 'comparison.json'}): {measured.command}, {measured.rounds} rounds."
    return f"{text} {provenance_of_comparison(measured)}."


def _rows_of(experiment: ExperimentAnalysis) -> Iterator[list[str]]:
    described = experiment.experiment
    about = f"`{described.name}`: {described.case}, `{described.main.name}`"
    for cell in experiment.cells:
        yield [about, *_row_of(cell)]
        about = ""


def _row_of(cell: CellAnalysis) -> list[str]:
    side = f"{title(cell.cell.backend)} {cell.cell.engine}"
    if cell.time is None:
        return [side, "", "", f"{cell.state}: {cell.reason}", ""]
    value = "" if cell.metric is None else with_bounds(cell.metric)
    told = [words(cell.difference) if cell.difference else "" for words in (difference_in_words, reasons_in_words)]
    return [side, seconds(cell.time.estimate), value, *told]


def wrong_verdicts(folder: Path) -> str:
    """Give a row to each kind of cells that were compared with themselves, the real ones together."""
    written = read_json(folder / "self-test.json")
    compared = [one for one in (Rates(**rate) for rate in written["rates"]) if one.compared]
    shown = [one for one in compared if not one.name.startswith("real")]
    if real := [one for one in compared if one.name.startswith("real")]:
        sums = [sum(counted) if None not in counted else None for counted in zip(*map(_counts, real), strict=True)]
        shown.append(Rates("real, both frameworks and engines", real[0].rounds, *sums))
    rows = [[one.name, str(one.rounds), str(one.compared), *_shares(one)] for one in shown]
    # Files from before there were reasons have no such columns.
    columns = COLUMNS if any(one.neither is not None for one in compared) else COLUMNS[:5]
    return table(columns, [row[: len(columns)] for row in rows], source_of(folder, ("self-test.json", written)))


def planted_faults(folder: Path, over: str) -> str:
    """Give a row to each fault that was planted in a framework, with how often its part was named."""
    name = f"planted-faults-{over}.json"
    written = read_json(folder / name)
    return table(HEADINGS, counts(written), source_of(folder, (name, written)))


def _counts(rates: Rates) -> tuple[Any, ...]:
    return (rates.compared, rates.false, rates.found, rates.neither, rates.kernels_only, rates.queue_only)


def _shares(rates: Rates) -> Iterator[str]:
    return ("" if n is None else f"{n / rates.compared:.1%}" for n in _counts(rates)[1:])
