"""A request is the same as JSON, and as the command that is written from it."""

import shlex
from pathlib import Path

import click
import pytest

from parallel_core import RequestError
from parallel_core.command_line import run as command
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.request import Files, Request, Words, Work, declared_by
from parallel_core.run.arguments import parameter_values
from parallel_core.run.options import command_of, request_of

WORK = Work(
    experiment="allreduce",
    backend="torch",
    engine="async",
    devices="cpu:1,cpu:2",
    device_kind="cpu",
    threads=2,
    workers=3,
    variant=("copy-on-own-queue", "tf32-off"),
    parameters={"sizes": "1KiB,4KiB..16KiB", "algorithm": "ring,star", "budget": 0.5},
)
FILES = Files(json=Path("a b.json"), trace=Path("trace.json"), checkpoint=Path("-"), resume=True)


def asked_by(line: str) -> Request:
    """Return the request of a command."""
    _program, _run, name, *words = shlex.split(line)
    run = command.run.get_command(click.Context(command.run), name)
    assert run is not None
    context = run.make_context(name, words)
    return request_of(EXPERIMENTS[name], context.params, context.meta[command.GIVEN])


def test_it_is_the_same_as_a_line_of_json() -> None:
    request = Request(work=WORK, files=FILES, words=Words(details=True, guess="10/10"))
    line = request.as_line()
    assert "\n" not in line
    assert Request.from_line(line) == request


def test_it_is_the_same_as_the_command_that_asks_for_it() -> None:
    written = command_of(WORK)
    assert "--variant copy-on-own-queue --variant tf32-off" in written
    asked = asked_by(written)
    assert asked.files == Files()
    values = parameter_values(EXPERIMENTS["allreduce"], asked.work.parameters)
    assert values == parameter_values(EXPERIMENTS["allreduce"], WORK.parameters)
    assert command_of(asked.work) == written


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_every_option_but_those_of_a_training(name: str) -> None:
    run = command.run.get_command(click.Context(command.run), name)
    assert run is not None
    options = {parameter.name for parameter in run.params}
    for part in (Work, Files, Words):
        declared = declared_by(part)
        assert {name for name, option in declared.items() if not option.only_with} <= options
    hidden = [option for option in run.params if getattr(option, "hidden", False)]
    assert hidden == []


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"trace": Path("-")}, "--trace needs a file"),
        ({"resume": True}, "--resume needs --checkpoint DIR"),
        ({"checkpoint_steps": 3}, "--checkpoint-steps needs --checkpoint DIR"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, object], refusal: str) -> None:
    Request.of("parallel", {"backend": "numpy"}).check()
    with pytest.raises(RequestError, match=refusal):
        Request.of("data-parallel", options).check()


@pytest.mark.parametrize(
    ("written", "refusal"),
    [
        ({"sise": 3}, r"unknown option of parallel '--sise'"),
        ({"size": 0}, r"Invalid value for '--size': 0 is not in the range"),
        ({"size": "many"}, r"Invalid value for '--size': 'many' is not a valid integer"),
    ],
)
def test_a_value_that_a_parameter_does_not_take_is_refused(
    written: dict[str, int | str], refusal: str
) -> None:
    with pytest.raises(RequestError, match=refusal):
        parameter_values(EXPERIMENTS["parallel"], written)
