"""The options of an experiment's parameters, as its module declares them, and the arguments that they are read into."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import click

from parallel_core.command_line import options
from parallel_core.command_line.options import Command
from parallel_core.experiments.runner.declaration import Parameter

__all__ = ["arguments_from", "parameter_options"]


def parameter_options(parameters: Sequence[Parameter]) -> Iterator[Callable[[Command], Command]]:
    """Iterate over the options of parameters, in their order."""
    for parameter in parameters:
        if parameter.fields:
            yield from parameter_options(tuple(parameter.fields.values()))
        else:
            yield _option_of(parameter)


def _option_of(parameter: Parameter) -> Callable[[Command], Command]:
    default = parameter.written_default or parameter.default
    if isinstance(default, Sequence) and not isinstance(default, str):
        default = ",".join(map(str, default))
    return click.option(
        f"--{parameter.option.replace('_', '-')}",
        parameter.option,
        type=_type_of(parameter),
        metavar=parameter.metavar,
        multiple=bool(parameter.choices),
        default=default,
        show_default=default is not None,
        help=parameter.help,
    )


def _type_of(parameter: Parameter) -> click.ParamType | type:
    if parameter.parse is not None:
        return options.Parsed(parameter.parse)
    if parameter.choices:
        return options.names(parameter.option, lambda: parameter.choices)
    origin, of = get_origin(parameter.type), get_args(parameter.type)
    if origin is Literal:
        return click.Choice(of)
    if origin is not None:
        return options.integers(int(parameter.maximum)) if of[0] is int else options.NUMBERS
    if parameter.type is int:
        return click.IntRange(parameter.minimum, int(parameter.maximum))
    return options.number(parameter.maximum) if parameter.type is float else str


def arguments_from(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run, by parameter, from the values of the options."""
    return {parameter.name: _argument_from(parameter, values) for parameter in parameters}


def _argument_from(parameter: Parameter, values: Mapping[str, Any]) -> Any:
    """Return one argument: a dataclass from the options of its fields, a repeated option as all of its values."""
    if parameter.fields:
        return replace(parameter.default, **arguments_from(tuple(parameter.fields.values()), values))
    value = values[parameter.option]
    if parameter.choices:
        return tuple(name for names in value for name in names) or parameter.default
    return value
