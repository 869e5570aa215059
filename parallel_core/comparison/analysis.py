"""All that is concluded from a comparison, computed once: terminal, report and exit status only
read it.

Every sentence is a fixed text followed by figures; what a figure means is the experiment's affair
(`Metric.place`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from parallel_core.comparison.account import (
    TimeDifference,
    account_of,
    loudness_of,
    systematic_errors,
    time_difference,
)
from parallel_core.comparison.cells import Cell, CellResults, Comparison
from parallel_core.comparison.validity import (
    CellState,
    assess,
    doubtful_units,
    main_case,
    unstable_cases,
)
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.measurement.confidence_intervals import (
    FEWEST_FOR_A_VERDICT,
    Interval,
    median_interval,
)
from parallel_core.measurement.result import Answer, Result
from parallel_core.measurement.sweep import labelled
from parallel_core.system.formatting import listed

NOTHING_MEASURED = "Nothing could be measured; every cell says why."
ONE_FRAMEWORK = "Only one framework was measured, so there is no other to compare it with."
NO_PAIR = "No two frameworks were measured in the same experiment on the same engine."


@dataclass(frozen=True)
class CellAnalysis:
    """What follows from one cell's results; a cell that is not believed has neither intervals nor a
    ratio.
    """

    results: CellResults
    state: CellState
    reason: str
    """Why it is not believed, or what was wrong with some of its processes."""
    case: str = ""
    """The case that cells of the experiment are compared by."""
    times: Mapping[str, Interval] = field(default_factory=dict)
    """Seconds until all was done, by case."""
    metrics: Mapping[str, Interval] = field(default_factory=dict)
    curves: Mapping[str, tuple[Interval, ...]] = field(default_factory=dict)
    """By label, an interval for each point of the experiment's sweep."""
    difference: TimeDifference | None = None
    """From the first believed cell of the experiment; None for that cell itself."""
    account: Mapping[str, Interval] = field(default_factory=dict)
    """What the main case's time is made of, in seconds, by part; see `account`."""
    warnings: tuple[str, ...] = ()
    """The cases whose bare times are doubtful, or whose times are unstable, each with the
    reasons.
    """

    @property
    def cell(self) -> Cell:
        """The experiment, backend and engine."""
        return self.results.cell

    @property
    def believed(self) -> bool:
        """Whether its results can be true."""
        return self.state == "measured"

    @property
    def time(self) -> Interval | None:
        """The time of that case."""
        return self.times.get(self.case)

    @property
    def metric(self) -> Interval | None:
        """The metric that answers the experiment's question."""
        return self.metrics.get(EXPERIMENTS[self.cell.experiment].main.name)

    @property
    def middle_result(self) -> Result:
        """The process whose metric is in the middle, which represents the rest; only a believed
        cell has one.
        """
        name = EXPERIMENTS[self.cell.experiment].main.name
        ordered = sorted(self.results.valid, key=lambda result: result.metrics.get(name, 0.0))
        return ordered[len(ordered) // 2]


@dataclass(frozen=True)
class ExperimentAnalysis:
    """The cells of one experiment, in the order of a round, and how they compare."""

    experiment: Experiment
    case: str
    """The case that its cells are compared by; empty if they have none in common."""
    cells: tuple[CellAnalysis, ...]
    between_frameworks: tuple[TimeDifference, ...]
    """On each engine, every framework against the first one; of frameworks that have one engine
    each, which are not the same, against the first one on its own.
    """
    between_engines: tuple[TimeDifference, ...]
    """For each framework, every engine against its first one."""
    answer: str
    """The answer to the experiment's question: what its metric says of every cell; empty if no cell
    has it.
    """
    sentences: tuple[str, ...]
    """The answer, then all differences."""
    systematic_errors: Mapping[str, float]
    """By framework, how many seconds the same operations differ by between its engines."""

    @property
    def believed(self) -> tuple[CellAnalysis, ...]:
        """The cells whose results can be true."""
        return tuple(cell for cell in self.cells if cell.believed)


@dataclass(frozen=True)
class Analysis:
    """A comparison and all that is concluded from it."""

    comparison: Comparison
    experiments: tuple[ExperimentAnalysis, ...]
    conclusions: tuple[str, ...]
    """How the engines scheduled in each experiment, then of each framework how it schedules and
    computes against the first one, each in some sentences.
    """

    @property
    def cells(self) -> tuple[CellAnalysis, ...]:
        """The cells of all experiments."""
        return tuple(cell for experiment in self.experiments for cell in experiment.cells)

    @property
    def believed(self) -> tuple[CellAnalysis, ...]:
        """The cells of all experiments whose results can be true."""
        return tuple(cell for cell in self.cells if cell.believed)

    @property
    def data(self) -> tuple[str, ...]:
        """Where the training data came from."""
        return tuple(
            sorted({one.data for cell in self.cells for one in cell.results.valid if one.data})
        )

    @property
    def side_by_side(self) -> Answer | None:
        """The answer, then what a process of each side answers, and once what would change it; None
        if none does.
        """
        answers = {cell.cell.side: cell.middle_result.answer for cell in self.believed}
        given = {side: answer for side, answer in answers.items() if answer is not None}
        if not given:
            return None
        sides: dict[str, list[str]] = {}
        for side, answer in given.items():
            sides.setdefault(answer.would_change, []).append(side)
        changes = [
            change if len(sides) == 1 else f"{listed(own)}: {change}"
            for change, own in sides.items()
        ]
        by_side = (f"{side}: {' '.join(answer.sentences)}" for side, answer in given.items())
        return Answer((*self.conclusions, *by_side), " ".join(changes))

    @property
    def backends(self) -> tuple[str, ...]:
        """The frameworks, in the order in which they were asked for."""
        return tuple(dict.fromkeys(results.cell.backend for results in self.comparison.cells))


def analyse(comparison: Comparison) -> Analysis:
    """Draw every interval, difference and verdict of a comparison, and the sentences that
    follow.
    """
    believed = [results for results in comparison.cells if assess(results)[0] == "measured"]
    loudness = loudness_of(believed)
    experiments = tuple(
        _analyse_experiment(EXPERIMENTS[name], comparison.of(name), loudness)
        for name in comparison.experiments
    )
    return Analysis(comparison, experiments, _conclusions(comparison, experiments))


def _conclusions(
    comparison: Comparison, experiments: Sequence[ExperimentAnalysis]
) -> tuple[str, ...]:
    """Return what figures with bands mean, then each framework against the first one.

    Of the differences between frameworks those on the first engine count, and those between
    engines.
    """
    said = [one.answer for one in experiments if one.answer and one.experiment.main.bands]
    engines = [results.cell.engine for results in comparison.cells]
    differences = [difference for one in experiments for difference in one.between_frameworks]
    # The first engine may be missing where the first experiment was measured.
    differences.sort(key=lambda difference: engines.index(difference.cell.engine))
    first = differences[0].cell.engine if differences else ""
    counted = [
        one.sentence
        for one in differences
        if one.cell.engine == first or one.cell.engine != one.against.engine
    ]
    if counted:
        return (*said, *counted)
    measured = {cell.cell.backend for one in experiments for cell in one.believed}
    return (*said, (NOTHING_MEASURED, ONE_FRAMEWORK, NO_PAIR)[min(len(measured), 2)])


def _analyse_experiment(
    experiment: Experiment, all_results: Sequence[CellResults], loudness: float
) -> ExperimentAnalysis:
    assessments = {results.cell: assess(results) for results in all_results}
    believed = {
        results.cell: results
        for results in all_results
        if assessments[results.cell][0] == "measured"
    }
    case = main_case(*believed.values()) if believed else ""
    for cell in [cell for cell, results in believed.items() if not results.medians(case)]:
        # Results of unlike work, put together by hand or from an older version.
        assessments[cell] = "failed", f"its results have no case {case or experiment.case!r}"
        del believed[cell]
    errors = systematic_errors([*believed.values()], case)
    compared = list(believed)
    against_first = [(cell, compared[0]) for cell in compared[1:]]
    by_engine = _between_frameworks(compared, [results.cell for results in all_results])
    by_backend = _against_first_of_group(compared, lambda cell: cell.backend)
    found = {
        (cell, other): time_difference(believed[cell], believed[other], case, errors, loudness)
        for cell, other in dict.fromkeys((*against_first, *by_engine, *by_backend))
    }
    from_first = {cell: found[cell, first] for cell, first in against_first}
    cells = tuple(
        _analyse_cell(one, *assessments[one.cell], case, from_first.get(one.cell))
        for one in all_results
    )
    between_frameworks = tuple(found[pair] for pair in by_engine)
    between_engines = tuple(found[pair] for pair in by_backend)
    answer = _answer(experiment, cells)
    sentences = (
        *filter(None, [answer]),
        *(one.sentence for one in (*between_frameworks, *between_engines)),
    )
    return ExperimentAnalysis(
        experiment, case, cells, between_frameworks, between_engines, answer, sentences, errors
    )


def _answer(experiment: Experiment, cells: Sequence[CellAnalysis]) -> str:
    """Say what an experiment's figure means on the cells that have it: a sentence for each band;
    empty without cells.

    What does not lie in one band has its bounds, too.
    `The devices worked at the same time: mxnet async (1.98 of 2), torch async (1.97 of 2).`
    """
    main = experiment.main
    groups: dict[str, list[str]] = {}
    for cell in cells:
        if (interval := cell.metric) is not None:
            result = cell.results.valid[0]
            is_exact = not main.bands or main.place(interval, result) is not None
            written = (
                main.in_short(interval.estimate, result)
                if is_exact
                else main.write(interval, result)
            )
            says = _meaning(main, interval, result)
            groups.setdefault(says, []).append(f"{cell.cell.side} ({written})")
    return " ".join(f"{says}: {', '.join(figures)}." for says, figures in groups.items())


def _meaning(main: Metric, interval: Interval, result: Result) -> str:
    """Say what an experiment's figure means; of one without bands, its name."""
    if not main.bands:
        return main.name
    return main.says(interval, result) if main.answers(interval, result) else "Inconclusive"


def _between_frameworks(believed: Sequence[Cell], cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Pair every believed cell with that of the first framework on its engine.

    If no framework was to run on several engines, the first one of every other engine is paired
    with the first of all.
    """
    pairs = _against_first_of_group(believed, lambda cell: cell.engine)
    if len({cell.backend for cell in cells}) < len(cells):
        return pairs
    firsts = {cell.engine: cell for cell in reversed(believed)}
    return [
        *pairs,
        *(
            (cell, believed[0])
            for cell in reversed(firsts.values())
            if cell.engine != believed[0].engine
        ),
    ]


def _against_first_of_group(
    cells: Sequence[Cell], group: Callable[[Cell], str]
) -> list[tuple[Cell, Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group(cell), []).append(cell)
    return [(other, first) for first, *others in groups.values() for other in others]


def _analyse_cell(
    results: CellResults,
    state: CellState,
    reason: str,
    case: str,
    difference: TimeDifference | None,
) -> CellAnalysis:
    if state != "measured":
        return CellAnalysis(results, state, reason)
    metrics = {name: results.metric(name) for result in results.valid for name in result.metrics}
    return CellAnalysis(
        results,
        state,
        reason,
        case,
        times={name: interval_of(results.medians(name)) for name in results.case_names},
        metrics={name: interval_of(values) for name, values in metrics.items() if values},
        curves=_curves(results),
        difference=difference,
        account={part: interval_of(values) for part, values in account_of(results, case).items()},
        warnings=(*doubtful_units(results), *unstable_cases(results)),
    )


def interval_of(values: Sequence[float]) -> Interval:
    """Return the median of the finite values, with its interval; of too few without bounds, which
    would reach far.
    """
    known = [value for value in values if math.isfinite(value)]
    interval = median_interval(known) if known else Interval(math.nan, math.nan, math.nan)
    return (
        interval
        if len(known) >= FEWEST_FOR_A_VERDICT
        else replace(interval, low=-math.inf, high=math.inf)
    )


def _curves(results: CellResults) -> dict[str, tuple[Interval, ...]]:
    curves, first = EXPERIMENTS[results.cell.experiment].curves, results.valid[0]
    if curves is None or curves.over not in first.series:
        return {}
    by_process = [labelled(result.series, curves.quantity) for result in results.valid]
    return {
        label: tuple(
            map(
                interval_of,
                zip(*(series[label] for series in by_process if label in series), strict=False),
            )
        )
        for label in labelled(first.series, curves.quantity)
    }
