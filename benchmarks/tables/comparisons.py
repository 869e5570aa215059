"""What `compare` gave, and how often it is wrong about cells that are compared with themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from humanize import metric

from benchmarks.harness.provenance import provenance_of_comparison
from benchmarks.self_test import COLUMNS, Rates
from benchmarks.tables.markdown import FRAMEWORKS, read_json, source_of, table
from parallel_core.comparison.analysis import CellAnalysis, ExperimentAnalysis, analyse
from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.storage import read_comparison
from parallel_core.comparison.verdicts import TimeRatio
from parallel_core.measurement.confidence_intervals import with_bounds

__all__ = ["comparison", "comparison_answer", "comparison_of_factors", "wrong_verdicts"]


def comparison(folder: Path) -> str:
    """Give a row to each cell of a comparison, with its ratio to the first one and the factors of that."""
    measured = read_comparison(folder)
    rows = [row for experiment in analyse(measured).experiments for row in _rows_of(experiment)]
    headings = ["experiment: case, figure", "cell", "time", "figure", "ratio to the first", "kernels", "scheduling"]
    return table([*headings, "verdict"], rows, _source(folder, measured))


def comparison_answer(folder: Path) -> str:
    """Quote the answer of a comparison."""
    return f"> {analyse(read_comparison(folder)).answer}"


def comparison_of_factors(folder: Path) -> str:
    """Give a row to each ratio of two cells: frameworks on the same engine, and engines of the same framework."""
    measured = read_comparison(folder)
    rows = [row for experiment in analyse(measured).experiments for row in _pairs_of(experiment)]
    headings = ["experiment", "time of", "ratio", "kernels", "scheduling"]
    return table(headings, rows, _source(folder, measured))


def _pairs_of(experiment: ExperimentAnalysis) -> Iterator[list[str]]:
    asynchronous = [one for one in experiment.between_frameworks if one.cell.engine == "async"]
    about = f"`{experiment.experiment.name}`"
    for one in (*asynchronous, *experiment.between_engines):
        factors = (one.interval, one.kernels, one.scheduling)
        yield [about, _pair(one), *("" if factor is None else with_bounds(factor) for factor in factors)]
        about = ""


def _pair(ratio: TimeRatio) -> str:
    one, other = ratio.cell, ratio.against
    if one.engine == other.engine:
        return f"{FRAMEWORKS[one.backend]} / {FRAMEWORKS[other.backend]}, both {one.engine}"
    return f"{FRAMEWORKS[one.backend]}: {one.engine} / {other.engine}"


def _source(folder: Path, measured: Comparison) -> str:
    text = f"[All of it]({folder / 'comparison.json'}): {measured.command}, {measured.rounds} rounds."
    return f"{text} {provenance_of_comparison(measured)}."


def _rows_of(experiment: ExperimentAnalysis) -> Iterator[list[str]]:
    described = experiment.experiment
    about = f"`{described.name}`: {described.case}, `{described.metric}`"
    for cell in experiment.cells:
        yield [about, *_row_of(cell)]
        about = ""


def _row_of(cell: CellAnalysis) -> list[str]:
    side = f"{FRAMEWORKS[cell.cell.backend]} {cell.cell.engine}"
    if cell.time is None:
        return [side, "", "", "", "", "", f"{cell.state}: {cell.reason}"]
    value = "" if cell.metric is None else with_bounds(cell.metric)
    first = [side, metric(cell.time.estimate, "s"), value]
    if cell.ratio is None:
        return [*first, "", "", "", ""]
    factors = (cell.ratio.interval, cell.ratio.kernels, cell.ratio.scheduling)
    return [*first, *("" if factor is None else with_bounds(factor) for factor in factors), cell.ratio.verdict]


def wrong_verdicts(folder: Path) -> str:
    """Give a row to each kind of cells that were compared with themselves, the real ones together."""
    written = read_json(folder / "self-test.json")
    compared = [one for one in (Rates(**rate) for rate in written["rates"]) if one.compared]
    shown = [one for one in compared if not one.name.startswith("real")]
    if real := [one for one in compared if one.name.startswith("real")]:
        sums = [sum(counted) if None not in counted else None for counted in zip(*map(_counts, real), strict=True)]
        shown.append(Rates("real, both frameworks and engines", real[0].rounds, *sums))
    rows = [[one.name, str(one.rounds), str(one.compared), *_shares(one)] for one in shown]
    # Files from before there were factors have no such columns.
    columns = COLUMNS if any(one.neither is not None for one in compared) else COLUMNS[:5]
    return table(columns, [row[: len(columns)] for row in rows], source_of(folder, ("self-test.json", written)))


def _counts(rates: Rates) -> tuple[Any, ...]:
    return (rates.compared, rates.false, rates.found, rates.neither, rates.kernels_only, rates.queue_only)


def _shares(rates: Rates) -> Iterator[str]:
    return ("" if n is None else f"{n / rates.compared:.1%}" for n in _counts(rates)[1:])
