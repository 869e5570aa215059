"""What an experiment declares in its module: `EXPERIMENT`, and its parameters, which are those of its program."""

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from backends import Backend
from backends.process_groups import GroupedBackend
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, KERNELS_OF_PRODUCTS, MATRIX_PRECISION
from parallel_core.experiments.runner.changes import Change
from parallel_core.experiments.runner.conclusions import conclude
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves
from parallel_core.system.formatting import listed

__all__ = [
    "BUDGET",
    "CHAPTERS",
    "OF_COPIES",
    "OF_PRODUCTS",
    "Budget",
    "Chosen",
    "ChosenSize",
    "Exercise",
    "Experiment",
    "Mode",
    "Parameter",
    "Rounds",
    "Seed",
    "annotations_of",
    "options_of",
    "parameters_of",
    "run_program",
]

CHAPTERS: Mapping[str, str] = MappingProxyType(
    {
        "asynchronous_computation": "Asynchronous Computation",
        "automatic_parallelism": "Automatic Parallelism",
        "training_on_multiple_gpus": "Training on Multiple GPUs",
    }
)
"""The titles of the book's chapters, by the packages that hold their experiments."""

OF_PRODUCTS = (KERNELS_OF_PRODUCTS, MATRIX_PRECISION)
"""The settings of variants that make a difference where matrices are multiplied and nothing else is done."""
OF_COPIES = (*OF_PRODUCTS, COPY_ON_COMPUTE_QUEUE.setting)
"""The same where results are copied too."""

Mode = Literal["full", "quick"]


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter of an experiment: `size: Annotated[int, Parameter("Side of the matrices.")] = 1000`."""

    help: str = ""
    minimum: int = 1
    option: str = ""
    """The name of its option, if that is not its own."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    """For a list of names: those that are known. Its option may be given several times."""
    parse: Callable[[str], object] | None = None
    """Reads the value if its type does not say how; raises ValueError."""
    written_default: str | None = None
    """How a default that `parse` reads is written."""
    fields: Mapping[str, "Parameter"] = field(default_factory=dict)
    """For a dataclass: the fields that are parameters, by their names."""
    name: str = ""
    type: Any = None
    """Its annotation without None; like `name` and `default` it is read from the signature."""
    default: Any = None


@dataclass(frozen=True, eq=False)
class Chosen(Parameter):
    """A parameter that a run chooses to suit the machine unless it is given; all cells of a comparison get the same."""

    how: Callable[[Trial], object] | None = None
    """Chooses it, before the program runs and after the parameters that stand before it; None: the program does."""


ROUNDS = Parameter("How often everything is timed, at most.")
SECONDS = Parameter("Seconds that it may take, about: fewer rounds if they are too few.")
Rounds = Annotated[int, ROUNDS]
Budget = Annotated[float, SECONDS]
BUDGET = 15.0
"""Seconds that an experiment which trains nothing may take, after the framework's import."""
Seed = Annotated[int, Parameter(minimum=0)]
ChosenSize = Annotated[int | None, Parameter("Side of the matrices. Default: chosen.")]


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
        """Its place in the chapter."""
        return f"exercise {self.number}{f' of the {self.edition} edition' if self.edition else ''}"


@dataclass(frozen=True)
class Experiment:
    """An experiment as the command line, a comparison and a report know it; its module's docstring explains it."""

    name: str
    position: int
    """Its place in the chapter's list."""
    case: str
    """The case whose times a comparison sets side by side first."""
    program: Callable[..., None] | None = None
    """A function of a trial and the parameters, which are annotated with `Parameter`; and of data, if it trains."""
    metrics: tuple[Metric, ...] = ()
    """The figures, first that which answers the question."""
    changes: tuple[Change, ...] = ()
    """What would change the answer: the first rule that applies is said."""
    rounds: int = 5
    budget: float = BUDGET
    judges_times: bool = True
    """Whether its answer is about times, which other work on the machine changes."""
    run: Callable[..., Result] = field(default=None)  # type: ignore[assignment]
    metric: str = ""
    """The figure that answers the question."""
    metric_means: str = ""
    """What the figure says, and its landmarks: `the share of the copies' time that was hidden: 0 is none, 1 is all`."""
    metric_limits: tuple[float, float] = (0.0, math.inf)
    """Between which values the figure can lie, but for noise."""
    queued_case: str = ""
    """The case that shows best how long before the end of the work control returns; `case` unless it is given."""
    calibrated: tuple[str, ...] = ()
    """Parameters that a run chooses to suit the machine; a comparison gives the same ones to all its cells."""
    options: Mapping[Mode, Mapping[str, int | str]] = field(default_factory=dict)
    """The options that a comparison runs it with, in full and with --quick."""
    exercises: tuple[Exercise, ...] = ()
    """The exercises of the chapter that it answers."""
    remark: str = ""
    """The figure, example or remark of the chapter that it is about, if it answers no exercise."""
    settings: tuple[str, ...] | None = None
    """The settings of variants that make a difference in it; None: all."""
    devices: int = 2
    """Logical devices unless the user chooses; a comparison gives it at least as many."""
    curves: Curves | None = None
    """What is drawn of its series, if it sweeps over something."""
    run_between_processes: Callable[..., Result] | None = None
    between_processes: Callable[..., None] | None = None
    """The program of each of several processes, if the experiment can run on several."""
    extent: Callable[..., tuple[int, int]] | None = None
    """For a training: a function of the arguments of `run` that returns the epochs, and the images of each."""

    def __post_init__(self) -> None:
        if not self.queued_case:
            object.__setattr__(self, "queued_case", self.case)
        if self.program is not None:
            main = self.metrics[0]
            chosen = tuple(one.name for one in parameters_of(self) if isinstance(one, Chosen))
            for name, value in {
                "run": partial(run_program, self),
                "metric": main.name,
                "metric_means": main.means,
                "metric_limits": main.limits,
                "calibrated": chosen,
            }.items():
                object.__setattr__(self, name, value)

    def program_on(self, backend: Backend) -> Callable[..., None] | None:
        """Return the program of a backend: that of several processes if it is one of them."""
        is_one_of_several = isinstance(backend, GroupedBackend) and backend.group.size > 1
        return self.between_processes if is_one_of_several and self.between_processes else self.program

    @property
    def runs_between_processes(self) -> bool:
        """Whether it can run on several processes."""
        return bool(self.between_processes or self.run_between_processes)

    @property
    def function(self) -> Callable[..., object]:
        """The function whose annotations are the parameters."""
        return self.program or self.run

    def metric_named(self, name: str) -> Metric:
        """Return one of the metrics; of a figure that is none of them nothing is known but its name."""
        if name == self.metric and not self.metrics:
            return Metric(name, means=self.metric_means, limits=self.metric_limits)
        unknown = Metric(name, limits=(-math.inf, math.inf))
        return next((metric for metric in self.metrics if metric.name == name), unknown)

    @property
    def chapter(self) -> str:
        """The title of the chapter whose package its module is in."""
        return CHAPTERS[self.function.__module__.split(".")[2]]

    @property
    def occasion(self) -> str:
        """The exercises, or the remark, that it is about; empty for the chapters' own demonstrations."""
        return listed([exercise.title for exercise in self.exercises]) if self.exercises else self.remark

    @property
    def question(self) -> str:
        """What it asks: the first paragraph of its module's docstring, after the subject."""
        paragraph = (inspect.getdoc(sys.modules[self.function.__module__]) or "").partition("\n\n")[0]
        question = " ".join(paragraph.split()).partition(": ")[2]
        return question[:1].upper() + question[1:]


def run_program(
    experiment: Experiment,
    backend: Backend,
    *,
    rounds: int | None = None,
    budget: float | None = None,
    **options: Any,
) -> Result:
    """Run an experiment's program on a backend: choose sizes that are not given, time, check, and conclude."""
    program = experiment.program_on(backend)
    assert program is not None
    known = {one.name: one for one in parameters_of(experiment)}
    given = {name: one.default for name, one in known.items() if name not in ("rounds", "budget")} | options
    rounds = rounds or experiment.rounds
    budget = experiment.budget if budget is None else budget
    written = {name: value for name, value in given.items() if name in known}
    trial = Trial(backend, written, rounds, budget)
    for name, parameter in known.items():
        if isinstance(parameter, Chosen) and parameter.how is not None and given[name] is None:
            given[name] = trial.parameters[name] = parameter.how(trial)
    program(trial, **given)
    trial.run()
    return conclude(
        experiment.name,
        trial,
        experiment.metrics,
        experiment.changes,
        curves=experiment.curves,
        judges_times=experiment.judges_times,
    )


def parameters_of(experiment: Experiment) -> tuple[Parameter, ...]:
    """Read the parameters of an experiment from its program's signature; a dataclass stands for its fields."""
    annotations = annotations_of(experiment.function)
    own = tuple(
        _with_type(parameter, name, annotations[name].__origin__, _default_of(declared))
        for name, declared in inspect.signature(experiment.function).parameters.items()
        for parameter in getattr(annotations.get(name), "__metadata__", ())
    )
    if experiment.program is None:
        return own
    timing = (ROUNDS, "rounds", int, experiment.rounds), (SECONDS, "budget", float, experiment.budget)
    return (*own, *(_with_type(*one) for one in timing))


def options_of(experiment: Experiment) -> Mapping[str, Parameter]:
    """Return the parameters of an experiment by the names of their options."""
    parameters = (one for own in parameters_of(experiment) for one in (own.fields.values() if own.fields else (own,)))
    return {parameter.option: parameter for parameter in parameters}


def _default_of(declared: inspect.Parameter) -> Any:
    # What a run chooses needs none.
    return None if declared.default is inspect.Parameter.empty else declared.default


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return a program's annotations by the names of its parameters, with their metadata."""
    return get_type_hints(function, include_extras=True)


def _with_type(parameter: Parameter, name: str, annotation: Any, default: Any) -> Parameter:
    """Return the parameter with its name, its type without None, and its default; and its fields with theirs."""
    types = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    (own,) = (type_ for type_ in types if type_ is not NoneType)
    hints = get_type_hints(own) if parameter.fields else {}
    fields = {
        field_name: _with_type(part, field_name, hints[field_name], getattr(default, field_name))
        for field_name, part in parameter.fields.items()
    }
    return replace(parameter, name=name, type=own, default=default, option=parameter.option or name, fields=fields)
