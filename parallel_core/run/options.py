"""The options of `run EXPERIMENT` and requests: a request is made from options, and written as the
command that asks for the same.

The options of every experiment are the fields of a request that declare one, the others are its
parameters.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import click

from backends.installation.frameworks import is_installed
from backends.registry import offers, spelled
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.guess import read_guess
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.measurement.request import Files, Option, Request, Words, Work, declared_by
from parallel_core.measurement.result import Result
from parallel_core.run.arguments import spelt, supplies_of
from parallel_core.run.values import DEVICES, MOST_DEVICES, PATH, Parsed, type_of

AddOption = Callable[[Any], Any]
"""Adds an option to a command."""
CHECKED: Mapping[str, click.ParamType] = {
    "devices": Parsed(DEVICES.parse, DEVICES.name, as_written=True),
    "guess": Parsed(read_guess, as_written=True),
}
"""The types of options whose texts have more to be checked than the types of their fields say."""


def usual_order() -> list[str]:
    """Return the frameworks in the order in which a command tries them that names none."""
    places = {name: offer.tried for name, offer in offers().items() if offer.tried}
    return [*sorted(places, key=places.__getitem__), "numpy"]


def usual_backend() -> str:
    """Return the backend of a command that names none: the first one that is installed."""
    return next(filter(is_installed, usual_order()))


def options_of(experiment: Experiment) -> Iterator[AddOption]:
    """Yield the options of an experiment's command, in the order of its help."""
    in_braces = {
        "backend": "A framework that `list` names; several with commas between them: side by side. "
        f" [default: the first that is installed of {', '.join(usual_order())}]",
        "devices": "Logical devices of a process: how many, or which (cpu:1,gpu:0; gpu:0/0,gpu:0/1 "
        f"for two streams on a GPU).  [default: {experiment.devices}; 1 for each of several "
        f"processes; at most {MOST_DEVICES}]",
        "guess": _about_guesses(experiment),
        "guess_metavar": "10/10|NUMBER" if experiment.counts else "NUMBER",
    }
    supplied = {kind.__name__ for kind in supplies_of(experiment.program).values()}
    only_with_supplies: list[AddOption] = []
    for part in (Work, Files, Words):
        for name, option in declared_by(part).items():
            add_option = _of_field(name, part, option, in_braces)
            if not option.only_with:
                yield add_option
            elif option.only_with in supplied:
                only_with_supplies.append(add_option)
    parameters = {parameter.name: parameter for parameter in experiment.parameters}
    rounds = parameters.pop("rounds", None)
    yield from _of_parameters(parameters.values())
    yield from only_with_supplies
    if rounds is not None:
        yield _of_parameter(rounds)


def option_of(part: type, name: str) -> AddOption:
    """Return the option of a field of a request's part, for a command that has it too."""
    return _of_field(name, part, declared_by(part)[name], {})


def _of_field(name: str, part: type, option: Option, in_braces: Mapping[str, str]) -> AddOption:
    """Return the option of a field of a request's part."""
    type_ = get_type_hints(part)[name]
    default = getattr(part, name)
    settings: dict[str, Any] = {
        "default": usual_backend if name == "backend" else default,
        "show_default": bool(default),
        "help": option.help.format(**in_braces) or None,
        "metavar": option.metavar and option.metavar.format(**in_braces),
    }
    if name in CHECKED:
        settings["type"] = CHECKED[name]
    elif type_ is bool:
        settings["is_flag"] = True
    elif type_ == tuple[str, ...]:
        settings["multiple"] = True
    elif type_ == Path | None:
        settings["type"] = PATH
    elif type_ in (int, int | None):
        settings["type"] = click.IntRange(1, option.most)
    return click.option(spelt(name), name, **settings)


def _of_parameters(parameters: Iterable[Parameter]) -> Iterator[AddOption]:
    """Yield the options of parameters, in their order; of a dataclass, those of its fields."""
    for parameter in parameters:
        if parameter.fields:
            yield from _of_parameters(parameter.fields.values())
        else:
            yield _of_parameter(parameter)


def _of_parameter(parameter: Parameter) -> AddOption:
    """Return the option of a parameter."""
    default = parameter.default
    if isinstance(default, Sequence) and not isinstance(default, str):
        default = ",".join(map(str, default))
    return click.option(
        spelt(parameter.option),
        parameter.option,
        type=type_of(parameter),
        metavar=parameter.metavar,
        multiple=bool(parameter.choices),
        default=default,
        show_default=default is not None,
        help=parameter.help,
    )


def _about_guesses(experiment: Experiment) -> str:
    """Return the help of `--guess`, with the figure and the count that may be guessed."""
    figure = f"{experiment.main.name}: {experiment.main.means}."
    if not experiment.counts:
        return f"Your guess, judged beside the answer, of {figure}"
    return (
        f"Your guess, judged beside the answer. 10/10: how many of 10 "
        f"{experiment.counts[0].counted}. A number: {figure}"
    )


def request_of(
    experiment: Experiment, values: Mapping[str, Any], written: Mapping[str, Any]
) -> Request:
    """Return what a command asks for.

    `values` are those of all its options, and `written` the texts of those that the user gave.
    """
    parameters = experiment.parameters_by_option
    asked = {name: text for name, text in written.items() if name in parameters}
    for part in (Work, Files, Words):
        for name in declared_by(part):
            asked[name] = values.get(name)
    return Request.of(experiment.name, asked)


def command_of(work: Work) -> str:
    """Return the command that asks for a work, as a shell reads it."""
    words = ["parallel-core", "run", work.experiment]
    for name in declared_by(Work):
        value = getattr(work, name)
        if name == "backend":
            value = spelled(value)
        if value != getattr(Work, name):
            for repeated in value if isinstance(value, tuple) else (value,):
                words += [spelt(name), str(repeated)]
    for name, value in work.parameters.items():
        words += [spelt(name), str(value)]
    return shlex.join(words)


def command_again(work: Work, result: Result) -> str:
    """Return the command that repeats a work with the sizes that it chose; empty without any."""
    sizes = EXPERIMENTS[work.experiment].sizes_chosen_in(result, work.parameters)
    if not sizes:
        return ""
    return command_of(replace(work, parameters={**work.parameters, **sizes}))


def options_for_one(request: Request) -> Iterator[str]:
    """Yield the options that are given, and refused if several backends are named."""
    for part in (request.work, request.files, request.words):
        for name, option in declared_by(type(part)).items():
            is_given = getattr(part, name) != getattr(type(part), name)
            if option.for_one and is_given:
                yield spelt(name)
