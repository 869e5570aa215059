"""What a comparison answers, in sentences that claim no more than intervals show: scheduling first, then kernels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from humanize import apnumber

from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.comparison.verdicts import COMPUTES, SCHEDULES, TimeRatio
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import (
    FEWEST_FOR_A_VERDICT,
    Interval,
    Verdict,
    decide,
    with_bounds,
)
from parallel_core.system.formatting import figure, kernels_in_words, listed, percent

__all__ = ["READINGS", "Answered", "Reading", "answer_to", "conclusions", "ratio_sentence"]

WELL, BADLY = 0.8, 0.2
"""From this share of what is possible on an engine schedules well, and up to that one badly."""
UNQUEUED = "had no queue, so the figure tells of parts that were slower alone"
"""What a figure says that only a queue could have reached."""


class Reading(NamedTuple):
    """What a metric says of scheduling, as the rest of a sentence about engines; `{devices}` is their number."""

    well: str
    partly: str
    badly: str
    share: Callable[[float, int], float]
    """The share of what is possible that was reached, by the metric and the number of devices."""
    write: Callable[[float], str]
    values: str = "{}"
    """How written metrics stand in brackets."""

    def of(self, metric: Interval, devices: int, engine: str) -> str:
        """Return what was shown, with `{devices}` filled in; empty if the interval allows several answers."""
        low, high = sorted(self.share(bound, devices) for bound in (metric.low, metric.high))
        place = decide(Interval(self.share(metric.estimate, devices), low, high), BADLY, WELL)
        if place and engine == "sync":
            return UNQUEUED
        return "" if place is None else (self.badly, self.partly, self.well)[place].format(devices=apnumber(devices))

    def in_brackets(self, metrics: Sequence[Interval]) -> str:
        """Write metrics as they stand behind what was shown."""
        return self.values.format(listed([self.write(metric.estimate) for metric in metrics]))


READINGS: Mapping[str, Reading] = {
    "async": Reading(
        "gave control back long before the work was done",
        "gave control back before the work was done",
        "gave control back when the work was done",
        lambda dispatch_fraction, _: 1 - dispatch_fraction,
        lambda dispatch_fraction: f"{figure(100 * dispatch_fraction)}%",
        "after {} of its time",
    ),
    "parallel": Reading(
        "kept {devices} devices busy",
        "kept {devices} devices busy for a part of the time",
        "let {devices} devices take turns",
        lambda speedup, devices: (speedup - 1) / max(1, devices - 1),
        "{:.2f} ×".format,
    ),
    "overlap": Reading(
        "copied results while the next ones were computed",
        "copied a part of the results while the next ones were computed",
        "copied and computed by turns",
        lambda efficiency, _: efficiency,
        percent,
        "{} of what is possible",
    ),
}
"""By experiment: those whose metric is of scheduling alone."""


class Answered(NamedTuple):
    """A believed cell, and its experiment's metric if it has one."""

    results: CellResults
    metric: Interval | None

    @property
    def cell(self) -> Cell:
        """The experiment, backend and engine."""
        return self.results.cell

    @property
    def backend(self) -> Mapping[str, Any]:
        """The object under that key of its first result."""
        return self.results.valid[0].backend


def answer_to(experiment: str, cells: Sequence[Answered]) -> str:
    """Answer an experiment's question, given its believed cells: what its metric says of each; empty without any.

    `Both async engines kept two devices busy (1.96 × and 1.97 ×); torch sync let two devices take turns (1.00 ×).`
    """
    metrics = {one.cell: one.metric for one in cells if one.metric}
    if not metrics:
        return ""
    reading, name = READINGS.get(experiment), EXPERIMENTS[experiment].metric
    if reading is None:
        values = listed([f"{figure(metric.estimate)} on {cell.side}" for cell, metric in metrics.items()])
        return f"{name} was {values}."
    shown: dict[str, list[Cell]] = {}
    for one in cells:
        if one.metric:
            words = reading.of(one.metric, len(one.backend["devices"]), one.cell.engine)
            shown.setdefault(words, []).append(one.cell)
    few = {one.cell for one in cells if len(one.results.valid) < FEWEST_FOR_A_VERDICT}
    unclear = [
        f"{figure(metrics[cell].estimate) if cell in few else with_bounds(metrics[cell])} on {cell.side}"
        for cell in shown.pop("", [])
    ]
    clauses = [
        f"{_engines(group, list(metrics))} {words} ({reading.in_brackets([metrics[cell] for cell in group])})"
        for words, group in shown.items()
    ]
    answer = "; ".join([*clauses, f"{name} was {listed(unclear)}"] if unclear else clauses)
    return f"{answer[0].upper() if answer.startswith(('both', 'all')) else answer[0]}{answer[1:]}."


def _engines(group: Sequence[Cell], all_cells: Sequence[Cell]) -> str:
    """Name cells: those of an engine together if all frameworks are among them, `both async engines and torch sync`."""
    names = []
    for engine in dict.fromkeys(cell.engine for cell in group):
        own = [cell for cell in group if cell.engine == engine]
        if 1 < len(own) == sum(cell.engine == engine for cell in all_cells):
            names.append(f"{'both' if len(own) == 2 else f'all {apnumber(len(own))}'} {engine} engines")
        else:
            names += [cell.side for cell in own]
    return listed(names)


def ratio_sentence(ratio: TimeRatio) -> str:
    """Write a ratio as a sentence, `For “both” torch async took 1.21 (1.15–1.28) times as long as …: slower.`

    A second one has its factors, if they are known.
    """
    case = EXPERIMENTS[ratio.cell.experiment].case
    few = ratio.verdict == "too few runs"
    remark = ", which is from too few runs to tell" if few else f": {ratio.verdict}"
    times = f"{_value(ratio.interval, few)} times as long as {ratio.against.side}"
    sentence = f"For “{case}” {ratio.cell.side} took {times}{remark}."
    if ratio.kernels and ratio.scheduling and ratio.kernels_verdict and ratio.scheduling_verdict:
        kernels = f"{_value(ratio.kernels, few)} by kernels{_remark(ratio.kernels_verdict, COMPUTES)}"
        scheduling = f"{_value(ratio.scheduling, few)} by scheduling{_remark(ratio.scheduling_verdict, SCHEDULES)}"
        sentence += f" That is {kernels} × {scheduling}."
    return sentence


def _value(interval: Interval, few: bool) -> str:
    return f"{interval.estimate:.2f}" if few else with_bounds(interval)


def _remark(verdict: Verdict, words: Mapping[Verdict, str]) -> str:
    return "" if verdict == "too few runs" else f" ({words.get(verdict, verdict)})"


def conclusions(answers: Iterable[str], ratios: Sequence[TimeRatio], believed: Sequence[Answered]) -> tuple[str, ...]:
    """Say how engines scheduled, then who schedules and who computes better, framework against the first one.

    `answers` are those about scheduling alone, `ratios` those between frameworks, of which the ones on the first engine
    count, and those between engines, and `believed` the cells of all experiments.
    """
    engine = ratios[0].cell.engine if ratios else ""
    by_pair: dict[tuple[str, str], list[TimeRatio]] = {}
    for ratio in ratios:
        if ratio.cell.engine == engine or ratio.cell.engine != ratio.against.engine:
            by_pair.setdefault((ratio.cell.backend, ratio.against.backend), []).append(ratio)
    pairs = [_pair_in_words(name, first, pair) for (name, first), pair in by_pair.items()]
    last = _kernels_in_words(by_pair, believed) if pairs else _nothing_to_compare(believed)
    return tuple(filter(None, [*answers, *pairs, last]))


class _Said(NamedTuple):
    """How verdicts on a quantity are said, and its ratios."""

    verb: str
    faster: str
    slower: str
    of: str
    times: str


TIMES = _Said("was", "faster", "slower", "", "{:.2f} × the time")
SCHEDULING = _Said("schedules", "better", "worse", " in scheduling", "× {:.2f}")
KERNELS = _Said("computes", "faster", "slower", " in computing", "{:.2f} × the time")


def _pair_in_words(name: str, first: str, ratios: Sequence[TimeRatio]) -> str:
    cell, against = ratios[0].cell, ratios[0].against
    on_one = cell.engine == against.engine
    whole, scheduling, kernels = [], [], []
    for ratio in ratios:
        experiment = ratio.cell.experiment
        if ratio.scheduling and ratio.scheduling_verdict and ratio.kernels and ratio.kernels_verdict:
            scheduling.append((experiment, ratio.scheduling, ratio.scheduling_verdict))
            # That there are too few runs is said once.
            if ratio.kernels_verdict != "too few runs":
                kernels.append((experiment, ratio.kernels, ratio.kernels_verdict))
        else:
            whole.append((experiment, ratio.interval, ratio.verdict))
    quantities = ((scheduling, SCHEDULING), (kernels, KERNELS), (whole, TIMES))
    sentences: list[str] = []
    for found, said in quantities:
        if found:
            clauses = _clauses("it" if sentences else name if on_one else cell.side, found, said)
            opening = f"Against {f'{first} on the {cell.engine} engine' if on_one else against.side}, {clauses}"
            sentences.append(f"{clauses[0].upper()}{clauses[1:]}." if sentences else f"{opening}.")
    return " ".join(sentences)


def _clauses(backend: str, found: Iterable[tuple[str, Interval, Verdict]], said: _Said) -> str:
    by_verdict: dict[Verdict, list[str]] = {}
    for experiment, interval, verdict in found:
        times = f" ({said.times.format(interval.estimate)})" if verdict in COMPUTES else ""
        by_verdict.setdefault(verdict, []).append(f"{experiment}{times}")
    in_words: Mapping[Verdict, str] = {"faster": said.faster, "slower": said.slower}
    directions = [
        f"{words} in {listed(by_verdict[verdict])}" for verdict, words in in_words.items() if verdict in by_verdict
    ]
    clauses = [f"{backend} {said.verb} {' and '.join(directions)}"] if directions else []
    # Of several frameworks the reader must know which one is meant.
    whose = "" if directions or backend == "it" else f" for {backend}"
    if same := by_verdict.get("no difference shown"):
        clauses.append(f"no difference{said.of} was shown{whose} in {listed(same)}")
    if unknown := by_verdict.get("too few runs"):
        clauses.append(f"there are too few runs to tell{whose} in {listed(unknown)}")
    return "; ".join(clauses)


def _kernels_in_words(by_pair: Mapping[tuple[str, str], Sequence[TimeRatio]], believed: Sequence[Answered]) -> str:
    """Name once what multiplies for each framework of the pairs in which one computes faster, the first ones last."""
    libraries = {name: _products_in_words(name, believed) for pair in by_pair for name in pair}
    told = [
        pair
        for pair, ratios in by_pair.items()
        if any(one.kernels_verdict in COMPUTES and one.scheduling_verdict for one in ratios)
        and all(libraries[name] for name in pair)
    ]
    names = dict.fromkeys([*(name for name, _ in told), *(first for _, first in told)])
    return f"Products: {'; '.join(f'{name} by {libraries[name]}' for name in names)}." if names else ""


def _products_in_words(backend: str, believed: Iterable[Answered]) -> str:
    """Name what multiplies matrices for a framework, and how fast: the median of its processes."""
    described = [
        result.backend
        for one in believed
        if one.cell.backend == backend
        for result in one.results.valid
        if result.backend.get("product") and result.backend.get("kernels")
    ]
    if not described:
        return ""
    rate = median(one["product"]["gflop_per_s"] for one in described)
    return kernels_in_words({**described[0], "product": {"gflop_per_s": rate}})


def _nothing_to_compare(believed: Iterable[Answered]) -> str:
    names = list(dict.fromkeys(one.cell.backend for one in believed))
    if not names:
        return "Nothing could be measured; every cell says why."
    if len(names) == 1:
        return f"Only {names[0]} was measured, so there is no other framework to compare it with."
    return "No two frameworks were measured in the same experiment on the same engine."
