"""The arguments of an experiment's program: the values of its parameters, and what it is supplied
with: training data, checkpoints, the display of progress, and the way to other ranks.

A program takes a supply if one of its arguments has its type as annotation, and the display of
progress if an argument has one of its names. A program imports nothing from here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, get_args

import click

from backends import Backend
from backends.errors import unknown
from backends.process_groups import Rendezvous
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.parameters import Parameter, annotations_of
from parallel_core.measurement.request import Files, Request, Work, Written
from parallel_core.run.values import type_of
from parallel_core.system.errors import RequestError
from parallel_core.training import checkpoints
from parallel_core.training.batches import CompletedSteps, Epoch
from parallel_core.training.checkpoints import Checkpointing
from parallel_core.training.dataset import Dataset, load_fashion_mnist
from parallel_core.training.loop import ignore
from parallel_core.training.plan import TrainingPlan

PROGRESS = ("on_plan", "on_batch", "on_epoch", "on_training")
"""The arguments of a program that are functions, which it calls as its training goes on."""


class ShownTraining(Protocol):
    """What shows how far a training is."""

    def go_on_from(self, progress: CompletedSteps) -> object:
        """Advance to the progress of a checkpoint."""

    def on_plan(self, plan: TrainingPlan) -> object:
        """Learn how long the training is to be."""

    def on_batch(self, epoch: int, images: int) -> object:
        """Advance by a batch's images."""

    def on_epoch(self, epoch: Epoch) -> object:
        """Learn the results of an epoch."""

    def on_training(self, name: str) -> object:
        """Learn that a training begins, by its name."""


ShowTraining = Callable[[int, int], AbstractContextManager[ShownTraining]]
"""Shows a training of so many epochs, each of so many images over all ranks."""


def open_checkpoints(files: Files) -> Checkpointing | None:
    """Read the checkpoint to resume, and return it with the function that writes new ones.

    None if no checkpoints are wanted. Raises CheckpointError for one that cannot be read.
    """
    if files.checkpoint is None:
        return None
    resumed = checkpoints.open_directory(files.checkpoint, files.resume)
    keep = partial(checkpoints.write_checkpoint, files.checkpoint)
    return Checkpointing(keep, files.checkpoint_steps, resumed)


@dataclass(frozen=True)
class Supplies:
    """What programs are supplied with, and who learns of it."""

    tell: Callable[[str], object] = ignore
    """Is called with a sentence for the user."""
    show_training: ShowTraining | None = None
    """None if nobody watches."""
    checkpoints: Callable[[Files], Checkpointing | None] = open_checkpoints
    check_data: Callable[[Dataset], object] = ignore
    """Is called with the data, and raises an error for such as other ranks do not have."""
    where: Rendezvous | None = None
    """Where this process has met other ranks; None if it is alone."""


def supplies_of(program: Callable[..., object]) -> dict[str, type]:
    """Return the types of what a program is to be supplied with, by the names of its arguments."""
    types: dict[str, type] = {}
    # Checkpoints are read before the data, which may have to be downloaded.
    for kind in (Checkpointing, Dataset, Rendezvous):
        for name, annotation in annotations_of(program).items():
            # The annotation may be `Checkpointing | None`.
            if kind is annotation or kind in get_args(annotation):
                types[name] = kind
    return types


@contextmanager
def arguments_of(
    request: Request, experiment: Experiment, backend: Backend, supplies: Supplies
) -> Iterator[dict[str, Any]]:
    """Make the arguments of an experiment's program on a backend.

    Until this context ends, the progress of a training is shown. Raises RequestError for a value
    that a parameter does not take.
    """
    program = experiment.program_on(backend)
    arguments = parameter_values(experiment, request.work.parameters)
    for name, kind in supplies_of(program).items():
        if kind is Checkpointing:
            arguments[name] = _checkpoints_for(request.files, supplies)
        elif kind is Dataset:
            arguments[name] = _data_for(request.work, supplies)
        else:
            arguments[name] = supplies.where
    if experiment.extent is None or supplies.show_training is None:
        yield arguments
        return
    epochs, images = experiment.extent(backend, **arguments)
    with supplies.show_training(epochs, images) as shown:
        checkpointing = arguments.get("checkpoints")
        if checkpointing is not None and checkpointing.resumed:
            shown.go_on_from(checkpointing.resumed.state.progress)
        for name in PROGRESS:
            if name in annotations_of(program):
                arguments[name] = getattr(shown, name)
        yield arguments


def _checkpoints_for(files: Files, supplies: Supplies) -> Checkpointing | None:
    """Return the checkpoint to resume, if checkpoints are wanted; tell if there is none yet."""
    checkpointing = supplies.checkpoints(files)
    if checkpointing is not None and files.resume and checkpointing.resumed is None:
        supplies.tell(
            f"parallel-core: no checkpoint in {files.checkpoint} yet: training starts from the "
            "beginning"
        )
    return checkpointing


def _data_for(work: Work, supplies: Supplies) -> Dataset:
    """Return the training data; tell if they are synthetic."""
    data = load_fashion_mnist(work.data_dir)
    supplies.check_data(data)
    if data.source.startswith("synthetic"):
        supplies.tell(f"This run trains on {data.source}.")
    return data


def parameter_values(experiment: Experiment, written: Mapping[str, Written]) -> dict[str, Any]:
    """Return the values of all parameters by name; a dataclass is made from those of its fields.

    Raises RequestError as `option_values` does.
    """
    by_option = option_values(experiment, written)
    values: dict[str, Any] = {}
    for parameter in experiment.parameters:
        if parameter.fields:
            fields = {name: by_option[of.option] for name, of in parameter.fields.items()}
            values[parameter.name] = replace(parameter.default, **fields)
        else:
            values[parameter.name] = by_option[parameter.option]
    return values


def option_values(experiment: Experiment, written: Mapping[str, Written]) -> dict[str, Any]:
    """Return the values of all parameters by option: as they are written, or else the defaults.

    Raises RequestError for an option that is none, and for a value that it does not take.
    """
    known = experiment.parameters_by_option
    for option in written:
        if option not in known:
            names = [spelt(name) for name in known]
            raise RequestError(unknown(f"option of {experiment.name}", spelt(option), names))
    return {
        option: _read(parameter, written[option]) if option in written else parameter.default
        for option, parameter in known.items()
    }


def _read(parameter: Parameter, written: Written) -> Any:
    """Read a value of a parameter."""
    kind = click.types.convert_type(type_of(parameter))
    try:
        return kind.convert(str(written), None, None)
    except click.BadParameter as error:
        option = spelt(parameter.option)
        raise RequestError(f"Invalid value for '{option}': {error.message}") from error


def spelt(name: str) -> str:
    """Return an option as it is written: `--device-kind`."""
    return f"--{name.replace('_', '-')}"
