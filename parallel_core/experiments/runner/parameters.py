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
"""The default of the largest number that an option takes."""
TRIES, CHOOSING = 3, 0.15
"""How many times a run chooses sizes while other programs disturb it, and the share of the budget
after which it tries no more.
"""


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter of an experiment: `size: Annotated[int, Parameter("Side of the matrices.")] =
    1000`.
    """

    help: str = ""
    minimum: int = 1
    maximum: float = MOST
    """The largest number, or the largest of several whole numbers."""
    option: str = ""
    """The name of its option, if it differs from the parameter's name."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    """For a list of names: the names that may be given. The option may be given several times."""
    parse: Callable[[str], object] | None = None
    """A function that reads the value, if its type does not say how; raises ValueError."""
    is_amount: bool = False
    """Whether it says how much work there is, so that a comparison like an older one must take it
    over, as all that a run chooses.
    """
    fields: Mapping[str, "Parameter"] = field(default_factory=dict)
    """For a dataclass: the fields that are parameters, by their names."""
    name: str = ""
    type: Any = None
    """The annotation without None; like `name` and `default` it is read from the signature."""
    default: Any = None


class Choice(NamedTuple):
    """A value that a run chose, and the code of the rule that decided it (`Result.chosen_by`)."""

    value: Any
    rule: str


@dataclass(frozen=True, eq=False)
class Chosen(Parameter):
    """A parameter whose value a run chooses to suit the machine, unless the user gives it.

    All frameworks and engines of a comparison get the same value.
    """

    how: Callable[[Trial], Choice] | None = None
    """The function that chooses the value before the program runs, in the order of the parameters;
    None if the program chooses it.
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
"""The runner's own parameters: most experiments have both as options."""
Seed = Annotated[int, Parameter(minimum=0, maximum=2**32 - 1)]


def choose(trial: Trial, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Choose the parameters that have no value, in their order, and return their values by name.

    While other programs disturb the machine, all are chosen again, a few times. The values that
    were chosen in the quietest moment count.
    """
    missing = [
        parameter
        for parameter in parameters
        if isinstance(parameter, Chosen) and trial.parameters[parameter.name] is None
    ]
    tries: list[tuple[float, dict[str, Choice]]] = []
    for _ in range(TRIES):
        before = sample_machine()
        choices = _choose_once(trial, missing)
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


def _choose_once(trial: Trial, parameters: Sequence[Chosen]) -> dict[str, Choice]:
    """Choose parameters in their order, because a choice may depend on the values before it.

    Every value is kept among the trial's parameters, and returned by name with its rule.
    """
    choices: dict[str, Choice] = {}
    for parameter in parameters:
        if parameter.how is not None:
            choice = parameter.how(trial)
            choices[parameter.name] = choice
            trial.parameters[parameter.name] = choice.value
    return choices


def parameters_of(program: Callable[..., object]) -> tuple[Parameter, ...]:
    """Return the annotated parameters of a program's signature, in their order."""
    annotations = annotations_of(program)
    parameters = []
    for name, declared in inspect.signature(program).parameters.items():
        annotation = annotations.get(name)
        # A parameter that a run chooses needs no default.
        has_default = declared.default is not declared.empty
        default = declared.default if has_default else None
        if get_origin(annotation) is Annotated:
            type_, parameter, *_ = get_args(annotation)
            parameters.append(_with_type(parameter, name, type_, default))
    return tuple(parameters)


def written(parameter: Parameter, value: Any) -> dict[str, Any]:
    """Return a parameter's value by name, as a result shows it; a dataclass becomes its fields."""
    if not parameter.fields:
        return {parameter.name: value}
    return {name: getattr(value, name) for name in parameter.fields}


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return a program's annotations by the names of its parameters, with their metadata."""
    return get_type_hints(function, include_extras=True)


def _with_type(parameter: Parameter, name: str, annotation: Any, default: Any) -> Parameter:
    """Return a parameter with its name, its type without None, and its default.

    The fields of a dataclass get their names, types and defaults too.
    """
    types = [annotation]
    if get_origin(annotation) in (Union, UnionType):
        types = [type_ for type_ in get_args(annotation) if type_ is not NoneType]
    (type_,) = types
    fields: dict[str, Parameter] = {}
    if parameter.fields:
        hints = get_type_hints(type_)
        for field_name, declared in parameter.fields.items():
            field_default = getattr(default, field_name)
            field_type = hints[field_name]
            fields[field_name] = _with_type(declared, field_name, field_type, field_default)
    return replace(
        parameter,
        name=name,
        type=type_,
        default=default,
        option=parameter.option or name,
        fields=fields,
    )
