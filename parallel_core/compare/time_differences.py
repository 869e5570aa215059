"""Why one cell takes longer than another: what their times are made of, in seconds, and the parts'
differences.

    time = operations + overhead + transfers not hidden + rest

- *Operations*: what those of the slowest device take, handed over as one unit with nothing queued
  between them (`ops.as_unit`), less what such a unit takes on one element each.
- *Overhead*: what the calls take on one element each, those of all devices added, for one thread of
  Python makes them.
- *Transfers not hidden*: what copies add to the time of the computation beside them, without their
  calls.
- *Rest*: what remains. Devices that wait for each other, interference and imbalance make it
  positive; overhead that is hidden behind operations is subtracted from it again.

Every process times a case and its parts in the same rounds, so that the parts add up in each
process. The parts are the same quantity on every framework. One that cannot be had is left out: of
a training step or an allreduce there are no calls on one element, so their operations contain the
calls.

A part is named as a reason if its difference has the sign of the whole difference, is at least a
third of it, and is, with its whole interval, larger than twice the systematic error. That is what
the operations of one framework differ by between its two engines, which are the same operations.
Nothing is named if operations took longer as a unit than their case did, or if other programs took
a fifth or more of the cores. `benchmarks/trust/planted_faults.py` counts how often planted faults
are named by their part and by no other.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import median
from types import MappingProxyType

import numpy as np

from parallel_core.compare.assessed import doubt_of_unit, main_case
from parallel_core.compare.results import Cell, CellResults
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement import differences
from parallel_core.measurement.confidence_intervals import (
    SMALLEST_DIFFERENCE,
    Interval,
    exponential,
    with_seconds,
)
from parallel_core.measurement.differences import Noise, Sample, Verdict
from parallel_core.system.formatting import percent, seconds
from parallel_core.system.machine import WORTH_SAYING

PARTS: Mapping[str, str] = {
    "operations": "operations",
    "overhead": "launching",
    "transfer": "copying",
    "rest": "waiting",
}
"""What each part is called where people read."""
LEAST_SHARE = 1 / 3
"""The share of a difference that a part needs to be named as its reason."""
TOO_BUSY = 0.2
"""If other processes take this share of the cores or more, no reasons are named."""
TRUSTED = 2.0
"""How many times the systematic error a reason is larger than."""
NO_DIFFERENCE: Mapping[Verdict, str] = {
    "no difference shown": "no significant difference",
    "too few runs": "too few runs to decide",
}


@dataclass(frozen=True)
class TimeDifference:
    """A cell's time compared with another's; below a ratio of 1, and below 0 seconds, it is the
    faster one.
    """

    cell: Cell
    against: Cell
    title: str
    """The framework and queues of the cell: `PyTorch + our queues`."""
    title_of_other: str
    case: str
    ratio: Interval
    verdict: Verdict
    seconds: Interval
    seconds_of_other: float
    """The time of the other cell."""
    parts: Mapping[str, Interval]
    """The differences of the parts that both cells have, in seconds."""
    reasons: tuple[str, ...]
    """The parts that explain the difference, the largest first; none if there is no difference, or
    it is withheld.
    """
    withheld: str = ""
    """Why no reasons are named, though the times differ."""

    @property
    def in_words(self) -> str:
        """What the time differs by, with the time that it is compared with, or that no difference
        was found: `65.6 ms (60–70) of 80 ms faster`, `30 ms (28–31) slower than 80 ms`.
        """
        if self.verdict not in ("faster", "slower"):
            return NO_DIFFERENCE[self.verdict]
        low, high = sorted((abs(self.seconds.low), abs(self.seconds.high)))
        difference = with_seconds(Interval(abs(self.seconds.estimate), low, high))
        whole = seconds(self.seconds_of_other)
        if self.verdict == "faster":
            return f"{difference} of {whole} faster"
        return f"{difference} slower than {whole}"

    @property
    def names_of_reasons(self) -> str:
        """The parts that explain the difference: `launching`; or that none does, or that they are
        withheld.
        """
        if self.verdict not in ("faster", "slower") or not self.parts:
            return ""
        if self.withheld:
            return "reasons withheld"
        return ", ".join(PARTS[part] for part in self.reasons) or "no part explains it"

    @property
    def reasons_in_words(self) -> str:
        """The same with the parts' differences: `launching 30 ms`."""
        if not self.reasons:
            return self.names_of_reasons
        reasons = []
        for part in self.reasons:
            difference = seconds(abs(self.parts[part].estimate))
            reasons.append(f"{PARTS[part]} {difference}")
        return ", ".join(reasons)

    @property
    def sentence(self) -> str:
        """The cells, their difference and its reasons: `overlap: PyTorch + our queues against
        MXNet: 30 ms (28–31) slower than 80 ms; launching 30 ms.`
        """
        words = self.in_words
        if self.reasons_in_words:
            words += f"; {self.reasons_in_words}"
        return f"{self.cell.experiment}: {self.title} against {self.title_of_other}: {words}."


def account_of(results: CellResults, case: str) -> Mapping[str, tuple[float, ...]]:
    """Return the parts of a case's time in every valid process, in seconds.

    Where calls cannot be told from operations, the operations contain them. There are no parts if
    none was measured.
    """
    parts: dict[str, tuple[float, ...]] = {}
    if results.medians(case, "operations_seconds"):
        for part in ("operations", "overhead", "transfer"):
            medians = results.medians(case, f"{part}_seconds")
            if medians:
                parts[part] = medians
    elif results.medians(case, "bare_seconds"):
        parts["operations"] = results.medians(case, "bare_seconds")
    else:
        return {}
    whole = np.asarray(results.medians(case))
    rest = whole - np.sum([*parts.values()], axis=0)
    return {**parts, "rest": tuple(map(float, rest))}


def _taken_share(results: CellResults) -> float:
    """Return the share of the cores that other processes took in a cell's processes, if it is worth
    saying.
    """
    shares = [
        one.machine_watch.taken_share for one in results.valid if one.machine_watch is not None
    ]
    share = median(shares) if shares else 0.0
    return min(share, 0.99) if share >= WORTH_SAYING else 0.0


def systematic_errors(believed: Sequence[CellResults], case: str) -> Mapping[str, float]:
    """Return by framework how many seconds the same operations differ by between its engines."""
    seconds_by_backend: dict[str, list[float]] = {}
    for results in believed:
        account = account_of(results, case)
        if "operations" in account:
            of_engines = seconds_by_backend.setdefault(results.cell.backend, [])
            of_engines.append(median(account["operations"]))
    return {
        backend: max(of_engines) - min(of_engines)
        for backend, of_engines in seconds_by_backend.items()
        if len(of_engines) > 1
    }


def time_difference(
    results: CellResults,
    other: CellResults,
    case: str = "",
    errors: Mapping[str, float] = MappingProxyType({}),
    noises: Mapping[str, Noise] = MappingProxyType({}),
) -> TimeDifference:
    """Compare two believed cells of an experiment by the time of a case, by default its main one.

    `errors` are the frameworks' systematic errors in seconds, `noises` are those of all experiments
    (`loudness_of`); one that is not there has its usual noise.
    """
    case = case or main_case(results, other)
    results, other = in_same_rounds(results, other)
    name = results.cell.experiment
    noise = noises.get(name, Noise(EXPERIMENTS[name].usual_deviation))
    error = max(errors.get(cell.backend, 0.0) for cell in (results.cell, other.cell))
    interval_of = partial(differences.difference_interval, freedom_of_usual=noise.freedom)
    return _difference(results, other, case, noise.deviation, interval_of, error)


def time_change(results: CellResults, before: CellResults, case: str) -> TimeDifference:
    """Compare a believed cell with the same one of an older comparison by the time of a case.

    The two were not measured in turn: no process of the one belongs to one of the other.
    """
    deviation = EXPERIMENTS[results.cell.experiment].usual_deviation
    return _difference(results, before, case, deviation, differences.unpaired_interval)


def _difference(
    results: CellResults,
    other: CellResults,
    case: str,
    deviation: float,
    interval_of: Callable[[Sample, Sample], Interval],
    error: float = 0.0,
) -> TimeDifference:
    """Compare two cells by the interval of a difference of two samples.

    `deviation` is that of the logarithms, and `error` the systematic one in seconds.
    """
    times, other_times = results.medians(case), other.medians(case)
    time, other_time = median(times), median(other_times)
    deviations = deviation * time, deviation * other_time
    lost, other_lost = _own_losses(results, other)
    sample = Sample(times, deviations[0], lost * time)
    other_sample = Sample(other_times, deviations[1], other_lost * other_time)
    ratio = exponential(interval_of(sample.logarithms, other_sample.logarithms))
    verdict = differences.verdict_on(ratio, min(len(times), len(other_times)))
    seconds = interval_of(sample, other_sample)
    account, other_account = account_of(results, case), account_of(other, case)
    parts: dict[str, Interval] = {}
    # A part that only one of the cells has is in the rest of the other.
    if account.keys() == other_account.keys():
        for part, values in account.items():
            parts[part] = interval_of(
                Sample(values, deviations[0]), Sample(other_account[part], deviations[1])
            )

    reasons: tuple[str, ...] = ()
    doubt = _doubt(results, other, case)
    if verdict in ("faster", "slower") and not doubt:
        least = max(TRUSTED * error, SMALLEST_DIFFERENCE * min(time, other_time))
        reasons = _reasons(seconds, parts, least)
    withheld = doubt if parts else ""
    return TimeDifference(
        results.cell,
        other.cell,
        results.title,
        other.title,
        case,
        ratio,
        verdict,
        seconds,
        other_time,
        parts,
        reasons,
        withheld,
    )


def _doubt(results: CellResults, other: CellResults, case: str) -> str:
    """Say why the parts of a case's time explain nothing; empty if they may."""
    doubt = doubt_of_unit(results, case) or doubt_of_unit(other, case)
    if doubt:
        return doubt
    taken = max(_taken_share(results), _taken_share(other))
    return f"other work took {percent(taken)} of the cores" if taken >= TOO_BUSY else ""


def _own_losses(results: CellResults, other: CellResults) -> tuple[float, float]:
    """Return the share of its time that each of two cells may have lost to other programs, and the
    other cell not.

    Of w seconds during which other programs held a share s of the cores, between w(1 − s) and w are
    the cell's own. On the same engine both want the same cores, so what both met cancels. An engine
    without queues wants fewer, so it loses no more than one with queues by what both met, and the
    one with queues may have lost all of it alone.
    """
    taken, taken_there = _taken_share(results), _taken_share(other)
    common = min(taken, taken_there)
    lost, lost_there = taken - common, taken_there - common
    if results.cell.engine != other.cell.engine:
        if results.cell.engine != "sync":
            lost = taken
        if other.cell.engine != "sync":
            lost_there = taken_there
    return lost, lost_there


def in_same_rounds(results: CellResults, other: CellResults) -> tuple[CellResults, CellResults]:
    """Return what two cells measured in the rounds that gave a valid result of both.

    If there are none, it is the first result of each, which allow no verdict.
    """
    rounds = set(results.rounds) & set(other.rounds)

    def shared(of: CellResults) -> CellResults:
        pairs = zip(of.rounds, of.valid, strict=True)
        kept = [result for turn, result in pairs if turn in rounds] or of.valid[:1]
        return CellResults(of.cell, tuple(kept))

    return shared(results), shared(other)


def loudness_of(cells: Iterable[CellResults]) -> dict[str, Noise]:
    """Return by name how much the believed cells of each experiment differ from round to round.

    How loud the machine is, the differences of all cells from the first one of their experiment say
    together.
    """
    cells_by_experiment: dict[str, list[CellResults]] = {}
    for results in cells:
        cells_by_experiment.setdefault(results.cell.experiment, []).append(results)
    from_first: list[tuple[Sequence[float], float]] = []
    for name, (first, *others) in cells_by_experiment.items():
        usual = EXPERIMENTS[name].usual_deviation
        from_first += [(_ratios(results, first), math.sqrt(2) * usual) for results in others]
    loudness = differences.loudness(from_first)

    noises: dict[str, Noise] = {}
    for name, of_experiment in cells_by_experiment.items():
        pairs = [_ratios(results, other) for results, other in combinations(of_experiment, 2)]
        expected = loudness * EXPERIMENTS[name].usual_deviation
        noises[name] = differences.noise_of_experiment(pairs, len(of_experiment), expected)
    return noises


def _ratios(results: CellResults, other: CellResults) -> Sequence[float]:
    """Return the ratios of two cells' times in the rounds of both; none without a common case."""
    case = main_case(other, results)
    results, other = in_same_rounds(results, other)
    times, other_times = results.medians(case), other.medians(case)
    if not times or not other_times:
        return ()
    return np.divide(times, other_times).tolist()


def _reasons(difference: Interval, parts: Mapping[str, Interval], least: float) -> tuple[str, ...]:
    """Return the parts that explain a difference, the largest first.

    Their whole intervals lie beyond `least` seconds in its direction.
    """
    direction = 1 if difference.estimate > 0 else -1
    explained: dict[str, float] = {}
    for part, interval in parts.items():
        nearest_to_zero = min(direction * interval.low, direction * interval.high)
        towards = direction * interval.estimate
        is_large = towards >= LEAST_SHARE * abs(difference.estimate)
        if is_large and nearest_to_zero > least:
            explained[part] = towards
    return tuple(sorted(explained, key=explained.__getitem__, reverse=True))
