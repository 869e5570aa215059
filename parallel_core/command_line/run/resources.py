"""The arguments of a run: its parameters, and its resources, which are training data, checkpoints,
the display of progress, and the way to other ranks.

A run takes a resource if one of its arguments has its type as annotation, and the display of
progress if an argument has one of its names. A run imports nothing from here.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
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
"""The arguments of a run that are functions, which it calls as its training goes on."""


class _Resource(NamedTuple):
    """A resource: its options, and the function that makes it from their values."""

    options: tuple[Callable[[Any], Any], ...]
    make: Callable[[Backend, Mapping[str, Any]], object]


def _read_checkpointing(values: Mapping[str, Any]) -> Checkpointing | None:
    """Read the checkpoint to resume, and return it with the function that writes new ones.

    None if no checkpoints are wanted. Raises RequestError for options that need --checkpoint, and
    CheckpointError for a checkpoint that cannot be read.
    """
    directory, every, resume = values["checkpoint"], values["checkpoint_steps"], values["resume"]
    if directory is None:
        if resume:
            raise RequestError("--resume needs --checkpoint DIR")
        if every is not None:
            raise RequestError("--checkpoint-steps needs --checkpoint DIR")
        return None
    resumed = checkpoints.open_directory(directory, resume)
    if resumed is None and resume:
        click.echo(
            f"parallel-core: no checkpoint in {directory} yet: training starts from the beginning",
            err=True,
        )
    return Checkpointing(partial(checkpoints.write_checkpoint, directory), every, resumed)


def _checkpointing(backend: Backend, values: Mapping[str, Any]) -> Checkpointing | None:
    """Read the checkpoint to resume.

    Rank 0 reads and writes for all ranks: the hosts of the others may not see its files.
    """
    if not isinstance(backend, GroupedBackend):
        return _read_checkpointing(values)
    group = backend.group
    read_here = _read_checkpointing(values) if group.rank == 0 else None
    # Rank 0 sends its checkpoint and its number of steps; both are empty if it has none.
    own_content = own_every = b""
    if read_here is not None:
        own_every = str(read_here.every or 0).encode()
        if read_here.resumed is not None:
            own_content = checkpoints.to_bytes(read_here.resumed)
    content = broadcast(group, own_content)
    every = broadcast(group, own_every)
    if group.rank == 0 or not every:
        return read_here
    resumed = checkpoints.from_bytes(content, "rank 0") if content else None
    return Checkpointing(keep=None, every=int(every) or None, resumed=resumed)


def agree_on_data(group: Group, data: Dataset) -> None:
    """Raise DisagreementError, in every rank, if ranks have different data; paths may differ."""
    description = {
        "the number of training images": len(data.train_labels),
        "the number of test images": len(data.test_labels),
        "the checksum of the training images": f"{data.checksum:08x}",
    }
    agree(group, description)


def _data_from(backend: Backend, values: Mapping[str, Any]) -> Dataset:
    """Load Fashion-MNIST, which must be the same on all ranks; say so if it is synthetic."""
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
"""The resources, by the annotations of the arguments that take them."""


def _taken_by(run: Callable[..., object]) -> dict[str, _Resource]:
    """Return the resources that a run takes, by the names of its arguments."""
    taken = {}
    for kind, resource in RESOURCES.items():
        for name, annotation in annotations_of(run).items():
            # The annotation may be `Checkpointing | None`.
            if kind is annotation or kind in get_args(annotation):
                taken[name] = resource
    return taken


def resource_options(run: Callable[..., object]) -> Iterator[Callable[[Command], Command]]:
    """Yield the options of the resources that a run takes."""
    for resource in reversed(_taken_by(run).values()):
        yield from resource.options


def files_of_resources(values: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files of resources that a run reads or writes, by its options."""
    if directory := values.get("checkpoint"):
        yield directory / FILE
    if directory := values.get("data_dir"):
        yield from directory.glob("*")


@contextmanager
def arguments_of(
    experiment: Experiment, backend: Backend, values: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Make the arguments of an experiment's program from the values of its options.

    Until this context ends, the progress of a training is shown.
    """
    program = experiment.program_on(backend)
    arguments: dict[str, Any] = {}
    for name, resource in _taken_by(program).items():
        arguments[name] = resource.make(backend, values)
    arguments |= arguments_from(experiment.parameters, values)
    if experiment.extent is None:
        yield arguments
        return
    epochs, images = experiment.extent(backend, **arguments)
    with progress_of(backend, epochs, images) as progress:
        checkpointing = arguments.get("checkpoints")
        if checkpointing is not None and checkpointing.resumed:
            progress.go_on_from(checkpointing.resumed.state.progress)
        for name in PROGRESS:
            if name in annotations_of(program):
                arguments[name] = getattr(progress, name)
        yield arguments


def parameter_options(parameters: Sequence[Parameter]) -> Iterator[Callable[[Command], Command]]:
    """Yield the options of parameters, in their order."""
    for parameter in parameters:
        if parameter.fields:
            yield from parameter_options(tuple(parameter.fields.values()))
        else:
            yield _option_of(parameter)


def _option_of(parameter: Parameter) -> Callable[[Command], Command]:
    """Return the option of a parameter."""
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
    """Return the type of a parameter's option."""
    if parameter.parse is not None:
        return options.Parsed(parameter.parse)
    if parameter.choices:
        return options.names(parameter.option, lambda: parameter.choices)
    origin, type_arguments = get_origin(parameter.type), get_args(parameter.type)
    if origin is Literal:
        return click.Choice(type_arguments)
    is_sequence = origin is not None
    if is_sequence and type_arguments[0] is int:
        return options.integers(int(parameter.maximum))
    if is_sequence:
        return options.NUMBERS
    if parameter.type is int:
        return click.IntRange(parameter.minimum, int(parameter.maximum))
    if parameter.type is float:
        return options.number(parameter.maximum)
    return str


def arguments_from(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run by name, from the values of its options."""
    return {parameter.name: _argument_from(parameter, values) for parameter in parameters}


def _argument_from(parameter: Parameter, values: Mapping[str, Any]) -> Any:
    """Return the argument of a parameter.

    A dataclass is made from the options of its fields, and a repeated option gives all its values.
    """
    if parameter.fields:
        fields = arguments_from(tuple(parameter.fields.values()), values)
        return replace(parameter.default, **fields)
    value = values[parameter.option]
    if parameter.choices:
        all_names = tuple(chain.from_iterable(value))
        return all_names or parameter.default
    return value


@contextmanager
def progress_of(
    backend: Backend, epochs: int, images: int
) -> "Iterator[TrainingProgress | _WatchedProgress]":
    """Show the progress of a training until this context ends; of several ranks only rank 0 does.

    `images` is the number of images of an epoch, over all ranks.
    """
    if isinstance(backend, GroupedBackend) and backend.group.rank > 0:
        yield _WatchedProgress(backend)
        return
    with training_progress(terminal_console(stderr=True), epochs, images) as progress:
        if isinstance(backend, GroupedBackend):
            yield _WatchedProgress(backend, progress)
        else:
            yield progress


@final
class _WatchedProgress:
    """The progress of a rank, which tells its watchdog of every batch."""

    def __init__(self, backend: GroupedBackend, shown: TrainingProgress | None = None) -> None:
        """Take the backend of the rank, and the display of progress if the rank has one."""
        self._backend = backend
        self.go_on_from = shown.go_on_from if shown else ignore
        self.on_plan = shown.on_plan if shown else ignore
        self.on_epoch = shown.on_epoch if shown else ignore
        self._show = shown.on_batch if shown else ignore

    def on_batch(self, epoch: int, images: int) -> None:
        """Tell the watchdog that a batch is done, and advance the display."""
        self._backend.on_exchange(self._backend.exchanges)
        self._show(epoch, images)
