"""The declaration of an experiment in its module, `EXPERIMENT`, and how it is run."""

import inspect
import math
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from backends import Backend
from backends.errors import BackendError
from backends.process_groups import GroupedBackend
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, KERNELS_OF_PRODUCTS, MATRIX_PRECISION
from parallel_core.experiments.runner.changes import Change
from parallel_core.experiments.runner.conclusions import conclude
from parallel_core.experiments.runner.counts import REPETITIONS, Count, record_counts
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.parameters import (
    TIMING,
    Chosen,
    Parameter,
    choose,
    parameters_of,
    written,
)
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.differences import USUAL_DEVIATION
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import TooSlowError
from parallel_core.system.formatting import listed

CHAPTERS: Mapping[str, str] = MappingProxyType(
    {
        "asynchronous_computation": "Asynchronous Computation",
        "automatic_parallelism": "Automatic Parallelism",
        "training_on_multiple_gpus": "Training on Multiple GPUs",
    }
)
"""The titles of the book's chapters, by the packages that hold their experiments."""

OF_PRODUCTS = (KERNELS_OF_PRODUCTS, MATRIX_PRECISION)
"""The settings of variants that make a difference where matrices are multiplied, and only there."""
OF_COPIES = (*OF_PRODUCTS, COPY_ON_COMPUTE_QUEUE.setting)
"""The same where results are copied too."""

SIZE_IN_NAME = re.compile(r"\d+( \w+)?")
"""As in `native, 4 MiB`."""

Mode = Literal["full", "quick"]


@dataclass(frozen=True)
class Exercise:
    """An exercise of a chapter that an experiment answers."""

    number: int
    question: str
    """What it asks, in a few words."""
    edition: str = ""
    """The framework whose edition of the chapter has it; empty if all have."""
    options: str = ""
    """What answers it in the experiment's command, if the command alone does not."""

    @property
    def title(self) -> str:
        """The exercise's place in the chapter."""
        edition = f" of the {self.edition} edition" if self.edition else ""
        return f"exercise {self.number}{edition}"


class Layer(NamedTuple):
    """A layer of what an operation takes, on top of the layers before it."""

    name: str
    style: Literal["compute", "host", "exchange", "wait"]
    """The kind of work, which its colour says."""
    case: str
    """The case that consists of this layer and those before it."""
    is_bare: bool = False
    """Whether it is the case's operations as units alone (`Case.bare_seconds`)."""


@dataclass(frozen=True)
class Experiment:
    """An experiment as the command line, a comparison and a report know it.

    The docstring of its module explains it.
    """

    name: str
    summary: str
    """Its question in at most 45 characters, for lists; `--explain` has it in full."""
    position: int
    """Its place in the chapter's list."""
    case: str
    """The case whose times a comparison sets side by side first."""
    program: Callable[..., None]
    """A function of a trial and the parameters, which are annotated with `Parameter`; and of data,
    if it trains.
    """
    metrics: tuple[Metric, ...]
    """The figures, first that which answers the question."""
    counts: tuple[Count, ...] = ()
    """What is counted, first that which answers the question."""
    changes: tuple[Change, ...] = ()
    """What would change the answer: the first rule that applies is said."""
    usual_deviation: float = USUAL_DEVIATION
    """How far apart the logarithms of its time in several processes usually are."""
    rounds: int | None = 5
    """How often everything is timed unless it is given; None: it has no such option."""
    budget: float | None = 15.0
    """Seconds that it may take after the framework's import; None: it has no such option."""
    queued_case: str = ""
    """The case that shows best how long before the end of the work control returns; `case` unless
    it is given.
    """
    drawn_case: str = ""
    """The case whose timeline is drawn; `case` unless it is given."""
    options: Mapping[Mode, Mapping[str, int | str]] = field(default_factory=dict)
    """The options that a comparison runs it with, in full and with --quick."""
    exercises: tuple[Exercise, ...] = ()
    """The exercises of the chapter that it answers."""
    contains: tuple[str, ...] = ()
    """The names of its parts for which a reader may look."""
    remark: str = ""
    """The figure, example or remark of the chapter that it is about, if it answers no exercise."""
    settings: tuple[str, ...] | None = None
    """The settings of variants that make a difference in it; None: all."""
    devices: int = 2
    """Logical devices unless the user chooses; a comparison gives it at least as many."""
    curves: Curves | None = None
    """What is drawn of its series, if it sweeps over something."""
    key_timeline: int = 0
    """The rank of its timeline in a report, whose first screen shows the first that is there; 0: it
    shows none.
    """
    layers: tuple[Layer, ...] = ()
    """What each of its `steps` takes, if that is drawn in layers."""
    predictions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By what is predicted, the metrics that are drawn beside each other: `measured` and others."""
    between_processes: Callable[..., None] | None = None
    """The program of each of several processes, if the experiment can run on several."""
    extent: Callable[..., tuple[int, int]] | None = None
    """For a training: a function of the backend and the program's arguments: the epochs, and the
    images of each.
    """

    def __post_init__(self) -> None:
        for name in ("queued_case", "drawn_case"):
            object.__setattr__(self, name, getattr(self, name) or self.case)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters for which its command has options: the program's, and the runner's."""
        parameters = list(parameters_of(self.program))
        for parameter in TIMING:
            default = getattr(self, parameter.name)
            if default is not None:
                parameters.append(replace(parameter, default=default))
        return tuple(parameters)

    @cached_property
    def parameters_by_option(self) -> Mapping[str, Parameter]:
        """The parameters by the names of their options; a dataclass stands for its fields."""
        by_option = {}
        for declared in self.parameters:
            for parameter in declared.fields.values() if declared.fields else (declared,):
                by_option[parameter.option] = parameter
        return by_option

    @cached_property
    def calibrated(self) -> tuple[str, ...]:
        """The names of the parameters that a run chooses to suit the machine.

        A comparison gives the same values to all its frameworks and engines.
        """
        return tuple(
            parameter.name for parameter in self.parameters if isinstance(parameter, Chosen)
        )

    def sizes_chosen_in(self, result: Result, given: Container[str]) -> dict[str, Any]:
        """Return the values that a run chose to suit the machine, by option.

        `given` are the options that it was given, and so did not choose.
        """
        chosen = set(self.calibrated)
        for parameter in self.parameters:
            if parameter.option in given:
                chosen -= {parameter.name, parameter.sweeps}
        return {name: result.parameters[name] for name in self.calibrated if name in chosen}

    @property
    def main(self) -> Metric:
        """The figure that answers the question."""
        return self.metrics[0]

    def metric_named(self, name: str) -> Metric:
        """Return the metric of a name; for a figure that is no metric, one that has only a name."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        return Metric(name, limits=(-math.inf, math.inf))

    @property
    def chapter(self) -> str:
        """The title of the chapter whose package its module is in."""
        return CHAPTERS[self.program.__module__.split(".")[2]]

    @property
    def occasion(self) -> str:
        """The exercises, or the remark, that it is about; empty for a demonstration."""
        if self.exercises:
            return listed([exercise.title for exercise in self.exercises])
        return self.remark

    @property
    def question(self) -> str:
        """Its question: the first paragraph of its module's docstring, after the subject."""
        docstring = inspect.getdoc(sys.modules[self.program.__module__]) or ""
        paragraph, _, _ = docstring.partition("\n\n")
        _, _, question = " ".join(paragraph.split()).partition(": ")
        return question[:1].upper() + question[1:]

    def program_on(self, backend: Backend) -> Callable[..., None]:
        """Return the program for a backend: another one if it is one of several processes."""
        is_one_of_several = isinstance(backend, GroupedBackend) and backend.group.size > 1
        if is_one_of_several and self.between_processes is not None:
            return self.between_processes
        return self.program

    def run(
        self,
        backend: Backend,
        *,
        count: int = REPETITIONS,
        sizes_chosen: bool = False,
        **options: Any,
    ) -> Result:
        """Run the program on a backend: choose sizes that are not given, time, check, count, and
        conclude.

        If the run chose all its sizes and too few rounds fit the budget, it starts again with a
        smaller size, and with half of the budget if less is left. At least `count` repetitions are
        recorded; with 0 nothing is counted. With `sizes_chosen` the given sizes are a comparison's,
        and no user's.
        """
        values = self._values_of(options)
        wanted_rounds = 0
        if self._chooses_all_sizes(values):
            wanted_rounds = min(FEWEST_FOR_A_VERDICT, values["rounds"])
        trial = self._trial(backend, values, fewest=wanted_rounds, count=count)
        if sizes_chosen:
            trial.described["chosen_by"] = {"size": "comparison"}
        try:
            self._measure(trial, values)
        except TooSlowError as slow:
            budget = max(trial.left(), trial.budget / 2)
            size = _size_for_rounds(trial, slow.seconds_of_round, budget, wanted_rounds)
            values = {**values, "size": size}
            trial = self._trial(backend, values, budget=budget, count=count)
            trial.described["chosen_by"] = {"size": "rounds"}
            self._measure(trial, values)
        if count:
            self._record_counts(trial)
        for declared in self.counts:
            if declared.name in trial.counts:
                problem = declared.problem(trial.counts[declared.name])
                if problem:
                    trial.problems.append(problem)
        return conclude(self.name, trial, self.metrics, self.changes, self.curves, self.counts)

    def _record_counts(self, trial: Trial) -> None:
        """Count what is declared, in recorded repetitions; a note says why if it is impossible."""
        try:
            trial.counts |= record_counts(
                self.counts, trial.takes, trial.backend, trial.repetitions
            )
        except (BackendError, OSError, ValueError) as error:
            trial.notes.append(f"Nothing was counted: {error}.")

    def _values_of(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options, and the defaults of parameters that are not among them."""
        values = {parameter.name: parameter.default for parameter in self.parameters}
        values |= options
        for parameter in self.parameters:
            if parameter.sweeps and values[parameter.name]:
                values[parameter.sweeps] = max(values[parameter.name])
        return values

    def _chooses_all_sizes(self, values: Mapping[str, Any]) -> bool:
        """Return whether a run with these values chooses its size and all else that it may."""
        return "size" in self.calibrated and all(values[name] is None for name in self.calibrated)

    def _trial(
        self,
        backend: Backend,
        values: Mapping[str, Any],
        fewest: int = 0,
        budget: float | None = None,
        *,
        count: int,
    ) -> Trial:
        """Return a trial that has measured nothing yet, with a smaller budget if one is given."""
        shown: dict[str, Any] = {}
        for parameter in self.parameters:
            shown |= written(parameter, values[parameter.name])
        timing = {name: values[name] for name in self._timing_names}
        if budget is not None:
            timing["budget"] = budget
        counted: set[str] = set()
        if count:
            counted = {declared.case for declared in self.counts if declared.case}
        return Trial(backend, shown, **timing, counted=counted, fewest=fewest, repetitions=count)

    def _measure(self, trial: Trial, values: Mapping[str, Any]) -> None:
        """Choose what has no value, run the program, and time what it registered."""
        arguments = {**values, **choose(trial, self.parameters)}
        for name in self._timing_names:
            del arguments[name]
        self.program_on(trial.backend)(trial, **arguments)
        trial.run()

    @property
    def _timing_names(self) -> list[str]:
        """The runner's own options that the experiment has."""
        return [name for name in ("rounds", "budget") if getattr(self, name) is not None]


def shown_case(names: Sequence[str], usual: str) -> str:
    """Return the name of the case to show: the usual one, or the one that is most like it.

    That is the last that differs from it in sizes only, or else the last of all; empty if there is
    none.
    """
    if usual in names:
        return usual
    without_size = SIZE_IN_NAME.sub("", usual)
    of_other_sizes = [name for name in names if SIZE_IN_NAME.sub("", name) == without_size]
    candidates = of_other_sizes or names
    return candidates[-1] if candidates else ""


def _size_for_rounds(trial: Trial, seconds_of_round: float, seconds: float, rounds: int) -> int:
    """Return the size with which a trial's warm-up and rounds fit into `seconds`.

    It is at most the trial's size, with which a round has taken `seconds_of_round`.
    """
    size: int = trial.parameters["size"]
    # The warm-up takes as long as a round.
    seconds_allowed = TIMED_SHARE * seconds / (1 + rounds)
    share_allowed = min(1.0, seconds_allowed / seconds_of_round)
    # The time of a round grows with the cube of the size.
    largest = int(size * share_allowed ** (1 / 3))
    return max(8, largest // 8 * 8)
