"""What `compare` gave, and how often it is wrong about cells that are compared with themselves."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from humanize import metric

from backends.registry import title
from benchmarks.harness.provenance import provenance_of_comparison
from benchmarks.self_test import COLUMNS, Rates
from benchmarks.tables.markdown import read_json, source_of, table
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
    """Quote the conclusions of a comparison, as a list."""
    return "\n".join(f"> - {conclusion}" for conclusion in analyse(read_comparison(folder)).conclusions)


def comparison_of_factors(folder: Path) -> str:
    """Give a row to each experiment and framework: its time over the first one's, and its engines' times."""
    measured = read_comparison(folder)
    first = measured.cells[0].cell.backend
    rows = [row for experiment in analyse(measured).experiments for row in _factors_of(experiment, first)]
    factors = "= kernels × scheduling"
    headings = ["experiment", "framework", f"async: time / {title(first)}’s", factors, "time: sync / async", factors]
    return table(headings, rows, _source(folder, measured))


def _factors_of(experiment: ExperimentAnalysis, first: str) -> Iterator[list[str]]:
    about = f"`{experiment.experiment.name}`"
    for name in dict.fromkeys(one.cell.backend for one in experiment.cells):
        across = [one for one in experiment.between_frameworks if _is_of(one, name, "async", "async")]
        within = [one for one in experiment.between_engines if _is_of(one, name, "sync", "async")]
        # If the first framework was not measured, the others are held against the next.
        unlike = [f", of {title(one.against.backend)}’s" for one in across if one.against.backend != first]
        ratio, *factors = _divided(across)
        yield [about, title(name), "".join((ratio, *unlike)), *factors, *_divided(within)]
        about = ""


def _is_of(ratio: TimeRatio, backend: str, *engines: str) -> bool:
    return ratio.cell.backend == backend and (ratio.cell.engine, ratio.against.engine) == engines


def _divided(ratios: Sequence[TimeRatio]) -> tuple[str, str]:
    """Write a ratio and its factors; nothing of what is not known."""
    for one in ratios:
        factors = (one.kernels, one.scheduling)
        return with_bounds(one.interval), " × ".join(with_bounds(factor) for factor in factors if factor is not None)
    return "", ""


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
