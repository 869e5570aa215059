"""What an experiment declares in its module: `EXPERIMENT`, and its parameters, which are those of its `run`."""

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, KERNELS_OF_PRODUCTS, MATRIX_PRECISION
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves
from parallel_core.system.formatting import listed

__all__ = [
    "BUDGET",
    "CHAPTERS",
    "MOST",
    "OF_COPIES",
    "OF_PRODUCTS",
    "Budget",
    "ChosenSize",
    "Exercise",
    "Experiment",
    "Mode",
    "Parameter",
    "Rounds",
    "Seed",
    "annotations_of",
    "parameters_of",
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
MOST = 1_000_000
"""The largest number that an option takes unless it says otherwise."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter of an experiment: `size: Annotated[int, Parameter("Side of the matrices.")] = 1000`."""

    help: str = ""
    minimum: int = 1
    maximum: float = MOST
    """Of a number, or of each of several whole ones."""
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


Rounds = Annotated[int, Parameter("How often everything is timed, at most.")]
Budget = Annotated[float, Parameter("Seconds that it may take, about: fewer rounds if they are too few.")]
BUDGET = 15.0
"""Seconds that an experiment which trains nothing may take, after the framework's import."""
Seed = Annotated[int, Parameter(minimum=0, maximum=2**32 - 1)]
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
    run: Callable[..., Result]
    """A function of a backend and the parameters, which are annotated with `Parameter`; and of data, if it trains."""
    case: str
    """The case whose times a comparison sets side by side first."""
    metric: str
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
    """What each of several processes calls in place of `run`, if the experiment can run on several."""
    extent: Callable[..., tuple[int, int]] | None = None
    """For a training: a function of the arguments of `run` that returns the epochs, and the images of each."""

    def __post_init__(self) -> None:
        if not self.queued_case:
            object.__setattr__(self, "queued_case", self.case)

    @property
    def chapter(self) -> str:
        """The title of the chapter whose package its module is in."""
        return CHAPTERS[self.run.__module__.split(".")[2]]

    @property
    def occasion(self) -> str:
        """The exercises, or the remark, that it is about; empty for the chapters' own demonstrations."""
        return listed([exercise.title for exercise in self.exercises]) if self.exercises else self.remark

    @property
    def question(self) -> str:
        """What it asks: the first paragraph of its module's docstring, after the subject."""
        paragraph = (inspect.getdoc(sys.modules[self.run.__module__]) or "").partition("\n\n")[0]
        question = " ".join(paragraph.split()).partition(": ")[2]
        return question[:1].upper() + question[1:]


def parameters_of(experiment: Experiment) -> tuple[Parameter, ...]:
    """Read the parameters of an experiment from the signature of its `run`; a dataclass stands for its fields."""
    annotations = annotations_of(experiment.run)
    return tuple(
        _with_type(parameter, name, annotations[name].__origin__, declared.default)
        for name, declared in inspect.signature(experiment.run).parameters.items()
        for parameter in getattr(annotations[name], "__metadata__", ())
    )


def annotations_of(run: Callable[..., Result]) -> dict[str, Any]:
    """Return a run's annotations by the names of its parameters, with their metadata."""
    return get_type_hints(run, include_extras=True)


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
