"""What a comparison answers, in sentences that follow from its intervals."""

from collections.abc import Iterable

from parallel_core.comparison.cells import Comparison, Measured
from parallel_core.comparison.summary import Ratio, believed, judge, ratio, rows
from parallel_core.experiments import EXPERIMENTS
from parallel_core.formatting import figure, listed
from parallel_core.measurement.confidence_intervals import with_bounds

__all__ = ["answer", "answers"]


def answer(comparison: Comparison) -> str:
    """Answer in a sentence or two: where each framework was faster or slower than the first, on the first engine."""
    pairs = [pair for experiment in comparison.experiments for pair in between_frameworks(comparison, experiment)]
    if not pairs:
        return nothing_to_compare(comparison)
    engine = pairs[0][0].cell.engine
    on_engine = [(mine, first) for mine, first in pairs if mine.cell.engine == engine]
    others = dict.fromkeys(pair_of(pair) for pair in on_engine)
    return " ".join(
        against([pair for pair in on_engine if pair_of(pair) == (mine, first)], mine, first, engine)
        for mine, first in others
    )


def against(pairs: Iterable[tuple[Measured, Measured]], mine: str, first: str, engine: str) -> str:
    """Say in which experiments one framework was faster or slower than another."""
    found: dict[str, list[str]] = {}
    for measured, other in pairs:
        experiment = measured.cell.experiment
        compared = ratio(measured, other)
        shown = compared.verdict in ("faster", "slower")
        times = f" ({compared.interval.estimate:.2f} × the time)" if shown else ""
        found.setdefault(compared.verdict, []).append(f"{experiment}{times}")
    told = [f"{verdict} in {listed(found[verdict])}" for verdict in ("faster", "slower") if verdict in found]
    clauses = [f"{mine} was {' and '.join(told)}"] if told else []
    if "no difference shown" in found:
        clauses.append(f"no difference was shown in {listed(found['no difference shown'])}")
    if "too few runs" in found:
        clauses.append(f"there are too few runs to tell in {listed(found['too few runs'])}")
    return f"Against {first} on the {engine} engine, {'; '.join(clauses)}."


def pair_of(pair: tuple[Measured, Measured]) -> tuple[str, str]:
    """Return the names of two cells' frameworks."""
    return pair[0].cell.backend, pair[1].cell.backend


def nothing_to_compare(comparison: Comparison) -> str:
    """Say why no framework could be held against another."""
    measured = dict.fromkeys(cell.cell.backend for cell in comparison.cells if judge(cell)[0] == "measured")
    if not measured:
        return "Nothing could be measured; every cell says why."
    if len(measured) == 1:
        return f"Only {next(iter(measured))} was measured, so there is no other framework to compare it with."
    return "No two frameworks were measured in the same experiment on the same engine."


def answers(comparison: Comparison, experiment: str) -> tuple[str, ...]:
    """Answer an experiment's question: its figure in every cell, then engines and frameworks compared by time."""
    described = EXPERIMENTS[experiment]
    figures = [
        f"{figure(row.metric.estimate)} on {row.measured.cell.side}"
        for row in rows(comparison, experiment)
        if row.metric
    ]
    sentences = [f"{described.metric} was {listed(figures)}."] if figures else []
    pairs = (*between_frameworks(comparison, experiment), *between_engines(comparison, experiment))
    for measured, other in pairs:
        sentences.append(f"For “{described.case}” {measured.cell.side} {in_words(ratio(measured, other))}.")
    return tuple(sentences)


def between_frameworks(comparison: Comparison, experiment: str) -> list[tuple[Measured, Measured]]:
    """Pair every framework with the first one, on each engine that both were measured on."""
    found = believed(comparison, experiment)
    groups = [[one for one in found if one.cell.engine == engine] for engine in engines(found)]
    return [(other, group[0]) for group in groups for other in group[1:]]


def between_engines(comparison: Comparison, experiment: str) -> list[tuple[Measured, Measured]]:
    """Pair each framework's further engines with its first one."""
    found = believed(comparison, experiment)
    backends = dict.fromkeys(one.cell.backend for one in found)
    groups = [[one for one in found if one.cell.backend == backend] for backend in backends]
    return [(other, group[0]) for group in groups for other in group[1:]]


def engines(found: Iterable[Measured]) -> list[str]:
    """List the engines of some cells once each, in order."""
    return list(dict.fromkeys(one.cell.engine for one in found))


def in_words(compared: Ratio) -> str:
    """Put a ratio and its verdict into words: `took 1.21 (1.15–1.28) times as long as mxnet async: slower`."""
    found = compared.interval
    if compared.verdict == "too few runs":
        return f"took {found.estimate:.2f} times as long as {compared.against}, which is from too few runs to tell"
    return f"took {with_bounds(found)} times as long as {compared.against}: {compared.verdict}"
