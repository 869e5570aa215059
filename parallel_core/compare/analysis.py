"""All that is concluded from a comparison, computed once: terminal, report and exit status only
read it.

Every sentence is a fixed text followed by figures; what a figure means is the experiment's affair
(`Metric.place`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from parallel_core.compare.assessed import (
    AssessedCell,
    assess,
    doubt_of_unit,
    main_case,
    unstable_cases,
)
from parallel_core.compare.results import Cell, CellResults, Comparison
from parallel_core.compare.time_differences import (
    TimeDifference,
    account_of,
    loudness_of,
    systematic_errors,
    time_difference,
)
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.counts import write
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.measurement.confidence_intervals import (
    FEWEST_FOR_A_VERDICT,
    Interval,
    median_interval,
)
from parallel_core.measurement.differences import Noise
from parallel_core.measurement.result import Answer, Result
from parallel_core.measurement.sweep import labelled
from parallel_core.system.formatting import listed

NOTHING_MEASURED = "Nothing could be measured; every cell says why."
ONE_FRAMEWORK = "Only one framework was measured, so there is no other to compare it with."
NO_PAIR = "No two frameworks were measured in the same experiment on the same engine."


@dataclass(frozen=True)
class CellAnalysis(AssessedCell):
    """The figures of one cell. A cell that is not believed has neither intervals nor a ratio."""

    time: Interval | None = None
    """The time of the case that cells of the experiment are compared by."""
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
    counted: tuple[str, ...]
    """What was counted in every cell: `Devices at once: MXNet 25 of 25, PyTorch 24 of 25.`"""
    answer: str
    """What the experiment's metric says of every cell; empty if no cell has it."""
    systematic_errors: Mapping[str, float]
    """By framework, how many seconds the same operations differ by between its engines."""

    @property
    def believed(self) -> tuple[CellAnalysis, ...]:
        """The cells whose results can be true."""
        return tuple(cell for cell in self.cells if cell.believed)

    def on(self, side: str) -> CellAnalysis | None:
        """Return the cell of a framework and engine; None if there is none."""
        return next((cell for cell in self.cells if cell.cell.side == side), None)

    @property
    def differences(self) -> tuple[TimeDifference, ...]:
        """Those between frameworks, then those between engines."""
        return (*self.between_frameworks, *self.between_engines)


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
        """The conclusions, then the answer of a process of each side, and what would change them.

        It is None if no process gives an answer.
        """
        sentences: list[str] = []
        sides_by_change: dict[str, list[str]] = {}
        for cell in self.believed:
            answer = cell.middle_result.answer
            if answer is not None:
                title = cell.results.title
                sentences.append(f"{title}: {' '.join(answer.sentences)}")
                sides_by_change.setdefault(answer.would_change, []).append(title)
        if not sentences:
            return None
        if len(sides_by_change) == 1:
            (change,) = sides_by_change
        else:
            changes = [f"{listed(sides)}: {change}" for change, sides in sides_by_change.items()]
            change = " ".join(changes)
        return Answer((*self.conclusions, *sentences), change)

    @property
    def backends(self) -> tuple[str, ...]:
        """The frameworks, in the order in which they were asked for."""
        return tuple(dict.fromkeys(results.cell.backend for results in self.comparison.cells))


def analyse(comparison: Comparison) -> Analysis:
    """Draw every interval, difference and verdict of a comparison, and the sentences that
    follow.
    """
    cells_by_experiment: dict[str, list[AssessedCell]] = {}
    for results in comparison.cells:
        cells_by_experiment.setdefault(results.cell.experiment, []).append(assess(results))
    all_cells = chain.from_iterable(cells_by_experiment.values())
    noises = loudness_of(cell.results for cell in all_cells if cell.believed)
    experiments = tuple(
        _analyse_experiment(EXPERIMENTS[name], cells, noises)
        for name, cells in cells_by_experiment.items()
    )
    return Analysis(comparison, experiments, _conclusions(comparison, experiments))


def _conclusions(
    comparison: Comparison, experiments: Sequence[ExperimentAnalysis]
) -> tuple[str, ...]:
    """Return the answers of figures with bands, then how frameworks compare with the first one.

    Frameworks are compared on the first engine, and across engines where each has one only.
    """
    conclusions = [one.answer for one in experiments if one.answer and one.experiment.main.bands]
    engines = [results.cell.engine for results in comparison.cells]
    differences = [difference for one in experiments for difference in one.between_frameworks]
    # The first engine may be missing where the first experiment was measured.
    differences.sort(key=lambda difference: engines.index(difference.cell.engine))
    for difference in differences:
        is_on_first_engine = difference.cell.engine == differences[0].cell.engine
        is_across_engines = difference.cell.engine != difference.against.engine
        if is_on_first_engine or is_across_engines:
            conclusions.append(difference.sentence)
    if not differences:
        measured = {cell.cell.backend for one in experiments for cell in one.believed}
        conclusions.append((NOTHING_MEASURED, ONE_FRAMEWORK, NO_PAIR)[min(len(measured), 2)])
    return tuple(conclusions)


def _analyse_experiment(
    experiment: Experiment, assessed: Sequence[AssessedCell], noises: Mapping[str, Noise]
) -> ExperimentAnalysis:
    """Compare the cells of an experiment, and say what its figures mean."""
    believed = [cell.results for cell in assessed if cell.believed]
    case = main_case(*believed) if believed else ""
    assessed = [_with_case(cell, case, experiment) for cell in assessed]
    results_of = {cell.cell: cell.results for cell in assessed if cell.believed}
    errors = systematic_errors([*results_of.values()], case)
    compared = list(results_of)
    against_first = [(cell, compared[0]) for cell in compared[1:]]
    pairs_of_frameworks = _between_frameworks(compared, [cell.cell for cell in assessed])
    pairs_of_engines = _against_first_of_group(compared, lambda cell: cell.backend)
    difference_of: dict[tuple[Cell, Cell], TimeDifference] = {}
    for cell, other in dict.fromkeys((*against_first, *pairs_of_frameworks, *pairs_of_engines)):
        difference_of[cell, other] = time_difference(
            results_of[cell], results_of[other], case, errors, noises
        )
    from_first = {cell: difference_of[cell, first] for cell, first in against_first}
    cells = tuple(_analyse_cell(cell, case, from_first.get(cell.cell)) for cell in assessed)
    return ExperimentAnalysis(
        experiment,
        case,
        cells,
        between_frameworks=tuple(difference_of[pair] for pair in pairs_of_frameworks),
        between_engines=tuple(difference_of[pair] for pair in pairs_of_engines),
        counted=_counted(experiment, cells),
        answer=_answer(experiment, cells),
        systematic_errors=errors,
    )


def _with_case(cell: AssessedCell, case: str, experiment: Experiment) -> AssessedCell:
    """Return a cell as failed if it lacks the case by which the believed ones are compared.

    Such results are of unlike work, put together by hand or from an older version.
    """
    if not cell.believed or cell.results.medians(case):
        return cell
    reason = f"its results have no case {case or experiment.case!r}"
    return replace(cell, state="failed", reason=reason)


def _counted(experiment: Experiment, cells: Sequence[CellAnalysis]) -> tuple[str, ...]:
    """Return a sentence for each count with a title. It holds even if times are invalid."""
    sentences = []
    for count in experiment.counts:
        written = []
        for cell in cells:
            counted = cell.results.counted(count.name)
            if counted is not None:
                written.append(f"{cell.results.title} {write(counted)}")
        if count.title and written:
            sentences.append(f"{count.title}: {', '.join(written)}.")
    return tuple(sentences)


def _answer(experiment: Experiment, cells: Sequence[CellAnalysis]) -> str:
    """Return a sentence for each band of an experiment's metric, with the cells that lie in it.

    A figure that lies in no band by itself has its bounds. Without figures the answer is empty.
    `The devices worked at the same time: MXNet (1.98 of 2), PyTorch + our queues (1.97 of 2).`
    """
    main = experiment.main
    figures_by_meaning: dict[str, list[str]] = {}
    for cell in cells:
        interval = cell.metric
        if interval is None:
            continue
        result = cell.results.valid[0]
        if main.bands and main.place(interval, result) is None:
            figure = main.write(interval, result)
        else:
            figure = main.in_short(interval.estimate, result)
        figures = figures_by_meaning.setdefault(_meaning(main, interval, result), [])
        figures.append(f"{cell.results.title} ({figure})")
    sentences = [
        f"{meaning}: {', '.join(figures)}." for meaning, figures in figures_by_meaning.items()
    ]
    return " ".join(sentences)


def _meaning(main: Metric, interval: Interval, result: Result) -> str:
    """Say what an experiment's figure means; of one without bands, its name."""
    if not main.bands:
        return main.name
    return main.says(interval, result) if main.answers(interval, result) else "Inconclusive"


def _between_frameworks(believed: Sequence[Cell], cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Pair every believed cell with that of the first framework on its engine.

    If no framework was to run on several engines, the first cell of every other engine is paired
    with the first of all.
    """
    pairs = _against_first_of_group(believed, lambda cell: cell.engine)
    has_several_engines = len({cell.backend for cell in cells}) < len(cells)
    if not has_several_engines:
        seen_engines = {cell.engine for cell in believed[:1]}
        for cell in believed:
            if cell.engine not in seen_engines:
                seen_engines.add(cell.engine)
                pairs.append((cell, believed[0]))
    return pairs


def _against_first_of_group(
    cells: Sequence[Cell], group: Callable[[Cell], str]
) -> list[tuple[Cell, Cell]]:
    """Pair every cell with the first one of its group."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group(cell), []).append(cell)
    return [(other, first) for first, *others in groups.values() for other in others]


def _analyse_cell(cell: AssessedCell, case: str, difference: TimeDifference | None) -> CellAnalysis:
    """Draw the intervals of a cell, if it is believed."""
    results = cell.results
    if not cell.believed:
        return CellAnalysis(results, cell.state, cell.reason)
    times = {name: interval_of(results.medians(name)) for name in results.case_names}
    metrics: dict[str, Interval] = {}
    names = chain.from_iterable(result.metrics for result in results.valid)
    for name in dict.fromkeys(names):
        values = results.metric(name)
        if values:
            metrics[name] = interval_of(values)
    parts = account_of(results, case)
    doubts = [doubt_of_unit(results, name) for name in results.case_names]
    return CellAnalysis(
        results,
        cell.state,
        cell.reason,
        time=times.get(case),
        times=times,
        metrics=metrics,
        curves=_curves(results),
        difference=difference,
        account={part: interval_of(values) for part, values in parts.items()},
        warnings=(*filter(None, doubts), *unstable_cases(results)),
    )


def interval_of(values: Sequence[float]) -> Interval:
    """Return the median of the finite values with its interval, which is unbounded for few."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Interval(math.nan, -math.inf, math.inf)
    interval = median_interval(finite)
    if len(finite) < FEWEST_FOR_A_VERDICT:
        # The bounds of so few would reach far.
        return replace(interval, low=-math.inf, high=math.inf)
    return interval


def _curves(results: CellResults) -> dict[str, tuple[Interval, ...]]:
    """Return a cell's curves by label, with an interval for each point."""
    curves = EXPERIMENTS[results.cell.experiment].curves
    if curves is None or curves.over not in results.valid[0].series:
        return {}
    values_by_label: dict[str, list[tuple[float, ...]]] = {}
    for result in results.valid:
        for label, values in labelled(result.series, curves.quantity).items():
            values_by_label.setdefault(label, []).append(values)
    return {
        label: tuple(map(interval_of, zip(*values, strict=False)))
        for label, values in values_by_label.items()
    }
