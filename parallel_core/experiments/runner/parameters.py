"""The parameters of an experiment, read from its program's signature: they become options."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from parallel_core.experiments.runner.trial import Trial
from parallel_core.system.machine import sample_machine, watched

MOST = 1_000_000
"""The largest number that an option takes unless it says otherwise."""
TRIES, CHOOSING = 3, 0.15
"""How often a run chooses while others disturb it, and the share of the budget after which it tries
no more.
"""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter of an experiment: `size: Annotated[int, Parameter("Side of the matrices.")] =
    1000`.
    """

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
    sweeps: str = ""
    """For several numbers: the parameter that they take the place of; it is the largest of them."""
    fields: Mapping[str, "Parameter"] = field(default_factory=dict)
    """For a dataclass: the fields that are parameters, by their names."""
    name: str = ""
    type: Any = None
    """Its annotation without None; like `name` and `default` it is read from the signature."""
    default: Any = None


class Choice(NamedTuple):
    """A value that a run chose, and the code of the rule that bound it (`Result.chosen_by`)."""

    value: Any
    rule: str


@dataclass(frozen=True, eq=False)
class Chosen(Parameter):
    """A parameter that a run chooses to suit the machine unless it is given.

    All frameworks and engines of a comparison get the same value.
    """

    how: Callable[[Trial], Choice] | None = None
    """Chooses it before the program runs, after the parameters that stand before it; None: the
    program does.
    """


TIMING = (
    Parameter("How often everything is timed, at most.", name="rounds", option="rounds", type=int),
    Parameter(
        "Seconds that it may take, about: fewer rounds if they are too few.",
        name="budget",
        option="budget",
        type=float,
    ),
)
"""Both are options of every experiment that has them, and the runner's own."""
Seed = Annotated[int, Parameter(minimum=0, maximum=2**32 - 1)]


def choose(trial: Trial, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Choose in turn the parameters that are not given, and return their values.

    While other programs disturb the machine, all are chosen again, a few times; those that were
    chosen in the quietest moment count.
    """
    wanted = [
        parameter
        for parameter in parameters
        if isinstance(parameter, Chosen) and trial.parameters[parameter.name] is None
    ]
    tries: list[tuple[float, dict[str, Choice]]] = []
    for _ in range(TRIES):
        before = sample_machine()
        choices = _choose_once(trial, wanted)
        watch = watched(before, sample_machine())
        tries.append((watch.taken_share, choices))
        if not watch.is_disturbed or trial.left(CHOOSING) <= 0:
            break
    _, quietest = min(tries, key=itemgetter(0))
    values = {name: choice.value for name, choice in quietest.items()}
    trial.parameters |= values
    trial.described.setdefault("chosen_by", {})
    trial.described["chosen_by"] |= {name: choice.rule for name, choice in quietest.items()}
    return values


def _choose_once(trial: Trial, wanted: Sequence[Chosen]) -> dict[str, Choice]:
    """Choose parameters in turn: a rule may depend on the values of those before."""
    choices: dict[str, Choice] = {}
    for parameter in wanted:
        if parameter.how is not None:
            choice = parameter.how(trial)
            choices[parameter.name] = choice
            trial.parameters[parameter.name] = choice.value
    return choices


def parameters_of(program: Callable[..., object]) -> tuple[Parameter, ...]:
    """Read the parameters of a program from its signature; a dataclass stands for its fields."""
    annotations = annotations_of(program)
    parameters = []
    for name, declared in inspect.signature(program).parameters.items():
        annotation = annotations.get(name)
        # What a run chooses needs no default.
        default = None if declared.default is declared.empty else declared.default
        if get_origin(annotation) is Annotated:
            type_, parameter, *_ = get_args(annotation)
            parameters.append(_with_type(parameter, name, type_, default))
    return tuple(parameters)


def written(parameter: Parameter, value: Any) -> dict[str, Any]:
    """Return what a result says of a parameter; of a dataclass, its fields."""
    if not parameter.fields:
        return {parameter.name: value}
    return {name: getattr(value, name) for name in parameter.fields}


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return a program's annotations by the names of its parameters, with their metadata."""
    return get_type_hints(function, include_extras=True)


def _with_type(parameter: Parameter, name: str, annotation: Any, default: Any) -> Parameter:
    """Return a parameter with its name, its type without None, and its default.

    Its fields, if it is of a dataclass, get theirs.
    """
    types = [annotation]
    if get_origin(annotation) in (Union, UnionType):
        types = [type_ for type_ in get_args(annotation) if type_ is not NoneType]
    (type_,) = types
    hints = get_type_hints(type_) if parameter.fields else {}
    fields = {
        field_name: _with_type(part, field_name, hints[field_name], getattr(default, field_name))
        for field_name, part in parameter.fields.items()
    }
    return replace(
        parameter,
        name=name,
        type=type_,
        default=default,
        option=parameter.option or name,
        fields=fields,
    )
