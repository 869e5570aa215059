"""The declaration of an experiment in its module, `EXPERIMENT`, and how it is run."""

import math
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from backends import Backend
from backends.errors import BackendError
from backends.process_groups import grouped
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, KERNELS_OF_PRODUCTS, MATRIX_PRECISION
from parallel_core.experiments.runner.changes import Change
from parallel_core.experiments.runner.conclusions import conclude
from parallel_core.experiments.runner.counting import (
    REPETITIONS,
    nothing_counted,
    record_counts,
)
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.metrics import DirectAnswer, Metric
from parallel_core.experiments.runner.parameters import (
    TIMING,
    Chosen,
    Parameter,
    choose,
    parameters_of,
    written,
)
from parallel_core.experiments.runner.recordings import reads_late
from parallel_core.experiments.runner.trial import TIMED_SHARE, Trial
from parallel_core.experiments.runner.witnesses import witness_for
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.differences import USUAL_DEVIATION
from parallel_core.measurement.result import Note, Result
from parallel_core.measurement.starter import ALONE, Turns
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
"""The settings of variants that matter to experiments in which matrices are multiplied."""
OF_COPIES = (*OF_PRODUCTS, COPY_ON_COMPUTE_QUEUE.setting)
"""The settings that matter if results are copied too."""

SIZE_IN_NAME = re.compile(r"\d+( \w+)?")
"""A size in the name of a case, as in `native, 4 MiB`."""

Mode = Literal["full", "quick"]


@dataclass(frozen=True)
class Exercise:
    """An exercise of a chapter that an experiment answers."""

    number: int
    question: str
    """The exercise's question in a few words."""
    edition: str = ""
    """The framework whose edition of the chapter has the exercise; empty if all editions do."""
    options: str = ""
    """The options with which the experiment's command answers the exercise, if it needs any."""

    @property
    def title(self) -> str:
        """The exercise's number and edition: `exercise 1 of the MXNet edition`."""
        edition = f" of the {self.edition} edition" if self.edition else ""
        return f"exercise {self.number}{edition}"


class Layer(NamedTuple):
    """A layer of the time that an operation takes, on top of the layers before it."""

    name: str
    style: Literal["compute", "host", "exchange", "wait"]
    """The kind of work, which decides the layer's colour."""
    case: str
    """The case that consists of this layer and those before it."""
    is_bare: bool = False
    """Whether the layer is the bare time of the case (`Case.bare_seconds`)."""


@dataclass(frozen=True)
class Experiment:
    """An experiment as the command line, a comparison and a report know it.

    The docstring of its module is its explanation.
    """

    name: str
    question: str
    """The question that an answer begins with, in at most 45 characters."""
    position: int
    """The number of the experiment in the chapter's list."""
    case: str
    """The case whose times a comparison sets side by side first."""
    program: Callable[..., None]
    """A function of a trial, of a data set if it trains, and of parameters that are annotated with
    `Parameter`.
    """
    metrics: tuple[Metric, ...]
    """The figures; the first one answers the question."""
    counts: tuple[Count, ...] = ()
    """The counts; the first one answers the question."""
    answer: Callable[[Result], DirectAnswer | None] | None = None
    """A function that answers a question of time from a result whose times can be believed."""
    changes: tuple[Change, ...] = ()
    """The rules on what would change the answer; the first one that applies is said."""
    usual_deviation: float = USUAL_DEVIATION
    """The usual deviation of the logarithm of the experiment's time between processes."""
    rounds: int | None = 5
    """The default number of rounds; None if there is no such option."""
    budget: float | None = 15.0
    """The default seconds after the framework's import; None if there is no such option."""
    queued_case: str = ""
    """The case that shows best how early control returns; by default `case`."""
    drawn_case: str = ""
    """The case whose timeline is drawn; by default `case`."""
    options: Mapping[Mode, Mapping[str, int | str]] = field(default_factory=dict)
    """The options with which a comparison runs the experiment, in full and with --quick."""
    exercises: tuple[Exercise, ...] = ()
    """The exercises of the chapter that the experiment answers."""
    contains: tuple[str, ...] = ()
    """The names of parts of the experiment that a reader may look for."""
    remark: str = ""
    """The figure, example or remark of the chapter that it is about, if it answers no exercise."""
    settings: tuple[str, ...] | None = None
    """The settings of variants that matter to the experiment; None: all settings."""
    devices: int = 2
    """The default number of logical devices, and the fewest in a comparison."""
    curves: Curves | None = None
    """The curves that are drawn of its series, if it sweeps over something."""
    key_timeline: int = 0
    """The rank of its timeline: a report's first screen shows the one with the lowest rank above 0
    that is there.
    """
    layers: tuple[Layer, ...] = ()
    """The layers of each operation's time, if they are drawn."""
    between_processes: Callable[..., None] | None = None
    """The program of each of several processes, if the experiment can run on several."""
    extent: Callable[..., tuple[int, int]] | None = None
    """For a training, a function that returns the number of epochs and the images of an epoch, from
    the backend and the program's arguments.
    """

    def __post_init__(self) -> None:
        """Let cases that are not declared be the main case."""
        for name in ("queued_case", "drawn_case"):
            declared = getattr(self, name)
            object.__setattr__(self, name, declared or self.case)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that are options of the command: the program's, and the runner's."""
        parameters = list(parameters_of(self.program))
        for parameter in TIMING:
            default = getattr(self, parameter.name)
            if default is not None:
                parameters.append(replace(parameter, default=default))
        return tuple(parameters)

    @cached_property
    def parameters_by_option(self) -> Mapping[str, Parameter]:
        """The parameters by the names of their options; the fields of a dataclass are options."""
        by_option = {}
        for declared in self.parameters:
            fields = list(declared.fields.values())
            for parameter in fields or [declared]:
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

    @property
    def amounts(self) -> tuple[str, ...]:
        """The names of the parameters that say how much work there is."""
        declared = (name for name, of in self.parameters_by_option.items() if of.is_amount)
        return (*self.calibrated, *declared)

    def sizes_chosen_in(self, result: Result, given: Container[str]) -> dict[str, Any]:
        """Return the values that a run chose to suit the machine, by the parameters' names.

        `given` are the options that the user gave, so that the run did not choose them.
        """
        chosen = {}
        for parameter in self.parameters:
            if isinstance(parameter, Chosen) and parameter.option not in given:
                chosen[parameter.name] = result.parameters[parameter.name]
        return chosen

    @property
    def main(self) -> Metric:
        """The metric that answers the question."""
        return self.metrics[0]

    def metric_named(self, name: str) -> Metric:
        """Return the metric of a name; if none is declared, a metric with this name alone."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        return Metric(name, limits=(-math.inf, math.inf))

    @property
    def chapter(self) -> str:
        """The title of the chapter, whose package contains the experiment's module."""
        package = self.program.__module__.split(".")[2]
        return CHAPTERS[package]

    @property
    def occasion(self) -> str:
        """The exercises or the remark that the experiment is about; empty for a demonstration."""
        if self.exercises:
            return listed([exercise.title for exercise in self.exercises])
        return self.remark

    def program_on(self, backend: Backend) -> Callable[..., None]:
        """Return the program to run on a backend; one of several processes may have another one."""
        one_of_several = grouped(backend)
        has_others = one_of_several is not None and one_of_several.group.size > 1
        if has_others and self.between_processes is not None:
            return self.between_processes
        return self.program

    def run(
        self,
        backend: Backend,
        *,
        count: int = REPETITIONS,
        sizes_chosen: bool = False,
        turns: Turns = ALONE,
        **options: Any,
    ) -> Result:
        """Run the program on a backend, and return the result.

        The run chooses sizes that are not given, times, checks, counts and concludes. If it chose
        all sizes and too few rounds fit the budget, it starts again with a smaller size, in the
        seconds that are left, at least half of the budget. `count` is the fewest repetitions that
        are recorded; with 0 nothing is counted. With `sizes_chosen` no user gave the sizes: a
        comparison or another process of the same run chose them. The process takes `turns`.
        """
        program = self.program_on(backend)
        defaults = {parameter.name: parameter.default for parameter in self.parameters}
        values = {**defaults, **options}
        wanted_rounds = 0
        if "size" in self.calibrated and all(values[name] is None for name in self.calibrated):
            wanted_rounds = min(FEWEST_FOR_A_VERDICT, values["rounds"])
        chosen_by = {"size": "comparison"} if sizes_chosen else {}
        budget, fewest = math.inf, wanted_rounds
        if self.budget is not None:
            budget = values["budget"]
        while True:
            trial = self._trial(backend, values, budget, fewest, count, turns)
            trial.described["chosen_by"] = chosen_by
            try:
                program(trial, **self._arguments(trial, values))
                trial.run()
                break
            except TooSlowError as slow:
                budget = max(trial.left(), trial.budget / 2)
                size = _size_for_rounds(trial, slow.seconds_of_round, budget, wanted_rounds)
                values = {**values, "size": size}
                chosen_by = {"size": "rounds"}
                # It takes the rounds that fit, however few.
                fewest = 0
        if count:
            self._record_counts(trial)
        trial.problems += self._problems_of_counts(trial)
        return conclude(
            self.name, trial, self.metrics, self.changes, self.curves, self.counts, self.answer
        )

    def _problems_of_counts(self, trial: Trial) -> list[Note]:
        """Say which counts show an error of the engine."""
        problems = []
        for count in self.counts:
            if count.name in trial.counts:
                problem = count.problem(trial.counts[count.name])
                if problem:
                    problems.append(problem)
        return problems

    def _record_counts(self, trial: Trial) -> None:
        """Record repetitions and keep their counts; if that fails, a sentence says why."""
        if witness_for(trial.backend) is None:
            if trial.backend.engine == "async":
                early = reads_late(trial.backend, trial.launches)
                trial.problems += [early] if early else []
            return
        try:
            recorded = record_counts(
                self.counts, trial.takes, trial.backend, trial.cases, trial.repetitions
            )
        except (BackendError, OSError, ValueError) as error:
            trial.uncounted.append(nothing_counted(str(error)))
            return
        trial.counts |= recorded.counts
        trial.uncounted += recorded.uncounted
        trial.problems += recorded.problems
        trial.faster_if_recorded |= recorded.faster

    def _trial(
        self,
        backend: Backend,
        values: Mapping[str, Any],
        budget: float,
        fewest: int,
        count: int,
        turns: Turns,
    ) -> Trial:
        """Return a new trial."""
        shown: dict[str, Any] = {}
        for parameter in self.parameters:
            shown |= written(parameter, values[parameter.name])
        counted_cases: set[str] = set()
        if count:
            counted_cases = {declared.case for declared in self.counts if declared.case}
        rounds = 1 if self.rounds is None else values["rounds"]
        return Trial(backend, shown, rounds, budget, counted_cases, fewest, count, turns)

    def _arguments(self, trial: Trial, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the program by name; those that are missing are chosen here."""
        arguments = {**values, **choose(trial, self.parameters)}
        for parameter in TIMING:
            # A program without the runner's option may have one of this name.
            if getattr(self, parameter.name) is not None:
                del arguments[parameter.name]
        return arguments


def shown_case(names: Sequence[str], usual: str) -> str:
    """Return the name of the case to show: the usual one, if it is among the names.

    Otherwise it is the last name that differs from the usual one in sizes only, or else the last
    name; empty if there are no names.
    """
    if usual in names:
        return usual
    without_size = SIZE_IN_NAME.sub("", usual)
    of_other_sizes = [name for name in names if SIZE_IN_NAME.sub("", name) == without_size]
    candidates = of_other_sizes or names
    return candidates[-1] if candidates else ""


def _size_for_rounds(trial: Trial, seconds_of_round: float, seconds: float, rounds: int) -> int:
    """Return the size, at most the trial's own, with which a warm-up and the rounds fit `seconds`.

    With the trial's own size a round took `seconds_of_round`.
    """
    size: int = trial.parameters["size"]
    # The warm-up takes as long as a round.
    seconds_allowed = TIMED_SHARE * seconds / (1 + rounds)
    share_allowed = min(1.0, seconds_allowed / seconds_of_round)
    # The time of a round grows with the cube of the size.
    largest = int(size * share_allowed ** (1 / 3))
    return max(8, largest // 8 * 8)
