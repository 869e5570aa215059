"""What a run takes: its parameters, and training data, checkpoints, the display of progress, the
way to other ranks.

A run names all but its parameters by the annotations of its arguments, and progress by their names;
it imports none of this.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, final, get_args, get_origin

import click

from backends import Backend
from backends.process_groups import Group, GroupedBackend, Rendezvous, agree, broadcast, rendezvous
from parallel_core.command_line import options
from parallel_core.command_line.options import Command
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.parameters import Parameter, annotations_of
from parallel_core.system.errors import RequestError
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.progress import TrainingProgress, training_progress
from parallel_core.training import checkpoints
from parallel_core.training.checkpoints import FILE, Checkpointing
from parallel_core.training.dataset import Dataset, load_fashion_mnist
from parallel_core.training.loop import ignore

PROGRESS = ("on_plan", "on_batch", "on_epoch", "on_training")
"""The arguments of a run that it calls as its training goes on."""


class _Resource(NamedTuple):
    """Options, and the function that makes what a run takes from their values."""

    options: tuple[Callable[[Any], Any], ...]
    make: Callable[[Backend, Mapping[str, Any]], object]


def _read_checkpointing(values: Mapping[str, Any]) -> Checkpointing | None:
    """Read the checkpoint that is to be resumed, and return how new ones are kept; None if none are
    asked for.

    Raises RequestError, and CheckpointError for a checkpoint that cannot be read.
    """
    directory, every, resume = (
        values[name] for name in ("checkpoint", "checkpoint_steps", "resume")
    )
    if directory is None:
        if every is not None or resume:
            raise RequestError(
                f"{'--resume' if resume else '--checkpoint-steps'} needs --checkpoint DIR"
            )
        return None
    resumed = checkpoints.open_directory(directory, resume)
    if resumed is None and resume:
        click.echo(
            f"parallel-core: no checkpoint in {directory} yet: training starts from the beginning",
            err=True,
        )
    return Checkpointing(partial(checkpoints.write_checkpoint, directory), every, resumed)


def _checkpointing(backend: Backend, values: Mapping[str, Any]) -> Checkpointing | None:
    """Read a checkpoint; rank 0 reads and keeps it for all ranks, whose hosts may not see its
    files.
    """
    if not isinstance(backend, GroupedBackend):
        return _read_checkpointing(values)
    group = backend.group
    own = _read_checkpointing(values) if group.rank == 0 else None
    content = broadcast(group, checkpoints.to_bytes(own.resumed) if own and own.resumed else b"")
    every = broadcast(group, str(own.every or 0).encode() if own else b"")
    if group.rank == 0 or not every:
        return own
    return Checkpointing(
        None, int(every) or None, checkpoints.from_bytes(content, "rank 0") if content else None
    )


def agree_on_data(group: Group, data: Dataset) -> None:
    """Compare all ranks' data, whose paths may differ; raises DisagreementError, in every rank, if
    they differ.
    """
    description = {
        "the number of training images": len(data.train_labels),
        "the number of test images": len(data.test_labels),
        "the checksum of the training images": f"{data.checksum:08x}",
    }
    agree(group, description)


def _data_from(backend: Backend, values: Mapping[str, Any]) -> Dataset:
    """Load Fashion-MNIST, the same on all ranks if there are several."""
    data = load_fashion_mnist(values["data_dir"])
    if isinstance(backend, GroupedBackend):
        agree_on_data(backend.group, data)
    is_first = not isinstance(backend, GroupedBackend) or backend.group.rank == 0
    if is_first and data.source.startswith("synthetic"):
        click.echo(f"This run trains on {data.source}.", err=True)
    return data


RESOURCES: Mapping[type, _Resource] = {
    # Checkpoints are read before the data, which may have to be downloaded.
    Checkpointing: _Resource(
        (
            options.path(
                "--checkpoint",
                "checkpoint",
                f"Keep the training in DIR/{FILE}, after each epoch.",
                "DIR",
            ),
            click.option(
                "--checkpoint-steps",
                type=options.POSITIVE,
                metavar="N",
                help="And after each N steps of one.",
            ),
            click.option(
                "--resume", is_flag=True, help="Go on from the checkpoint in DIR, if there is one."
            ),
        ),
        _checkpointing,
    ),
    Dataset: _Resource(
        (
            click.option(
                "--data-dir", type=options.PATH, help="Where the four files of Fashion-MNIST are."
            ),
        ),
        _data_from,
    ),
    Rendezvous: _Resource((), lambda _, __: rendezvous(os.environ)),
}
"""By the annotation of a run's argument."""


def _taken_by(run: Callable[..., object]) -> dict[str, _Resource]:
    """Return the resources that a run takes, by the name of its argument."""
    kinds = {
        name: (annotation, *get_args(annotation))
        for name, annotation in annotations_of(run).items()
    }
    return {
        name: resource
        for kind, resource in RESOURCES.items()
        for name in kinds
        if kind in kinds[name]
    }


def resource_options(run: Callable[..., object]) -> Iterator[Callable[[Command], Command]]:
    """Iterate over the options of the resources that a run takes."""
    for resource in reversed(_taken_by(run).values()):
        yield from resource.options


def files_of_resources(values: Mapping[str, Any]) -> Iterator[Path]:
    """Iterate over the files that a run reads or keeps where its options say."""
    if directory := values.get("checkpoint"):
        yield directory / FILE
    if directory := values.get("data_dir"):
        yield from directory.glob("*")


@contextmanager
def arguments_of(
    experiment: Experiment, backend: Backend, values: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Make what an experiment's program takes from the values of its options; a training's progress
    is shown.
    """
    program = experiment.program_on(backend)
    arguments: dict[str, Any] = {
        name: resource.make(backend, values) for name, resource in _taken_by(program).items()
    }
    arguments |= arguments_from(experiment.parameters, values)
    with ExitStack() as shown:
        if experiment.extent is not None:
            progress = shown.enter_context(
                progress_of(backend, *experiment.extent(backend, **arguments))
            )
            kept = arguments.get("checkpoints")
            if kept is not None and kept.resumed:
                progress.go_on_from(kept.resumed.state.progress)
            arguments |= {
                name: getattr(progress, name)
                for name in PROGRESS
                if name in annotations_of(program)
            }
        yield arguments


def parameter_options(parameters: Sequence[Parameter]) -> Iterator[Callable[[Command], Command]]:
    """Iterate over the options of parameters, in their order."""
    for parameter in parameters:
        if parameter.fields:
            yield from parameter_options(tuple(parameter.fields.values()))
        else:
            yield _option_of(parameter)


def _option_of(parameter: Parameter) -> Callable[[Command], Command]:
    default = parameter.default
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
    """Return one argument: a dataclass from the options of its fields, a repeated option as all of
    its values.
    """
    if parameter.fields:
        return replace(
            parameter.default, **arguments_from(tuple(parameter.fields.values()), values)
        )
    value = values[parameter.option]
    if parameter.choices:
        return tuple(name for names in value for name in names) or parameter.default
    return value


@contextmanager
def progress_of(
    backend: Backend, epochs: int, images: int
) -> "Iterator[TrainingProgress | _WatchedProgress]":
    """Show a training of some epochs, each of so many images over all ranks; of several ranks only
    rank 0 does.
    """
    if isinstance(backend, GroupedBackend) and backend.group.rank > 0:
        yield _WatchedProgress(backend)
        return
    with training_progress(terminal_console(stderr=True), epochs, images) as progress:
        yield (
            _WatchedProgress(backend, progress) if isinstance(backend, GroupedBackend) else progress
        )


@final
class _WatchedProgress:
    """The progress of a rank, which keeps a deadline: a batch without an exchange is progress,
    too.
    """

    def __init__(self, backend: GroupedBackend, shown: TrainingProgress | None = None) -> None:
        self._backend = backend
        self.go_on_from = shown.go_on_from if shown else ignore
        self.on_plan = shown.on_plan if shown else ignore
        self.on_epoch = shown.on_epoch if shown else ignore
        self._show = shown.on_batch if shown else ignore

    def on_batch(self, epoch: int, images: int) -> None:
        self._backend.on_exchange(self._backend.exchanges)
        self._show(epoch, images)
