"""The commands of the chapter "Training on Multiple GPUs"."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from backends import Backend
from backends.process_groups import GroupedBackend, rendezvous
from parallel_core import experiments
from parallel_core.command_line import options
from parallel_core.command_line.experiment_command import experiment
from parallel_core.errors import RequestError
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS
from parallel_core.experiments.training_on_multiple_gpus.learning_rates import (
    DEFAULTS,
    INITIAL_SCALE,
    RATES,
    trainings_in,
)
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import with_scaling
from parallel_core.jobs.rank.shared_inputs import agree_on_data, checkpointing_of
from parallel_core.jobs.rank.training_progress import progress_of
from parallel_core.measurement.result import Result
from parallel_core.terminal.training_progress import training_progress
from parallel_core.training.checkpoints import FILE, Checkpointing, from_bytes, open_directory, write_checkpoint
from parallel_core.training.dataset import load_fashion_mnist
from parallel_core.training.gradient_exchange import Exchange
from parallel_core.training.loop import Settings

__all__ = [
    "checkpoint_options",
    "checkpointing",
    "run_allreduce",
    "run_batch_norm",
    "run_batch_scaling",
    "run_building_blocks",
    "run_data_parallel",
    "run_learning_rates",
    "run_partitioning",
]


Command = TypeVar("Command", bound=Callable[..., Any])


def checkpoint_options(command: Command) -> Command:
    """Add the options `checkpoint`, `checkpoint_steps` and `resume` to a command."""
    shared = (
        click.option(
            "--checkpoint",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help=f"Keep the training in DIR/{FILE}, after each epoch.",
        ),
        click.option("--checkpoint-steps", type=options.POSITIVE, metavar="N", help="And after each N steps of one."),
        click.option("--resume", is_flag=True, help="Go on from the checkpoint in DIR, where there is one."),
    )
    for option in reversed(shared):
        command = option(command)
    return command


def checkpointing(directory: Path | None, every: int | None, resume: bool) -> Checkpointing | None:
    """Read the checkpoint that is to be resumed, and return how new ones are kept; None where none are asked for.

    Raises RequestError, and CheckpointError where there is a checkpoint that cannot be read.
    """
    if directory is None:
        if every is not None or resume:
            raise RequestError(f"{'--resume' if resume else '--checkpoint-steps'} needs --checkpoint DIR")
        return None
    content = open_directory(directory, resume)
    if content is None and resume:
        click.echo(f"parallel-core: no checkpoint in {directory} yet: training starts from the beginning", err=True)
    resumed = None if content is None else from_bytes(content, str(directory / FILE))
    return Checkpointing(partial(write_checkpoint, directory), every, resumed)


data_dir = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where the four files of Fashion-MNIST are."
)


seed = click.option("--seed", type=click.IntRange(min=0), default=Settings.seed, show_default=True)


@experiment("data-parallel")
@click.option("--epochs", type=options.POSITIVE, default=Settings.epochs, show_default=True)
@click.option(
    "--batch-size", type=options.POSITIVE, default=Settings.batch_size, show_default=True, help="Over all devices."
)
@click.option("--lr", type=options.Number(), default=Settings.learning_rate, show_default=True, help="Learning rate.")
@click.option("--limit", type=options.POSITIVE, help="Batches an epoch. Default: all.")
@seed
@click.option(
    "--exchange",
    type=click.Choice(("after", "during")),
    default=Settings.exchange,
    show_default=True,
    help="Sum gradients after the backward pass, or each layer's during it.",
)
@click.option(
    "--width", type=options.POSITIVE, default=Settings.width, show_default=True, help="Times the channels and units."
)
@data_dir
@checkpoint_options
def run_data_parallel(
    backend: Backend,
    epochs: int,
    batch_size: int,
    lr: float,
    limit: int | None,
    seed: int,
    exchange: Exchange,
    width: int,
    data_dir: Path | None,
    checkpoint: Path | None,
    checkpoint_steps: int | None,
    resume: bool,
) -> Result:
    checkpoints = checkpointing_of(backend, partial(checkpointing, checkpoint, checkpoint_steps, resume))
    data = load_fashion_mnist(data_dir)
    if isinstance(backend, GroupedBackend):
        agree_on_data(backend.group, data)
    settings = Settings(epochs, batch_size, lr, limit, seed, exchange, width)
    images = min(len(data.train_labels), batch_size * (limit or len(data.train_labels)))
    with progress_of(backend, epochs, images) as progress:
        if checkpoints and checkpoints.resumed:
            progress.go_on_from(checkpoints.resumed.state.progress)
        result = experiments.run_data_parallel(
            backend, data, settings, progress.on_batch, progress.on_epoch, checkpoints
        )
    if not isinstance(backend, GroupedBackend):
        return result
    before = checkpoints.resumed.state.progress.losses if checkpoints and checkpoints.resumed else ()
    return with_scaling(result, backend, data, settings, len(result.series["loss"]) - len(before))


@experiment("allreduce")
@click.option(
    "--algorithm",
    "algorithms",
    type=options.Names("algorithm", lambda: tuple(ALGORITHMS)),
    multiple=True,
    metavar="NAMES",
    help=f"One or more of {', '.join(ALGORITHMS)}. Default: all; between processes native.",
)
@click.option(
    "--sizes",
    type=options.Sizes(),
    default="4KiB..256MiB",
    show_default=True,
    metavar="SIZES",
    help="Of each device's vector: a range, in factors of 4, or a list such as 4KiB,1MiB,100MB.",
)
@options.rounds
def run_allreduce(
    backend: Backend, algorithms: tuple[tuple[str, ...], ...], sizes: tuple[int, ...], rounds: int
) -> Result:
    names = tuple(name for some in algorithms for name in some)
    where = rendezvous(os.environ) if isinstance(backend, GroupedBackend) and backend.group.size > 1 else None
    if isinstance(backend, GroupedBackend) and where is not None:
        return experiments.run_allreduce_between(backend, where, names or ("native",), sizes, rounds)
    return experiments.run_allreduce(backend, names or tuple(ALGORITHMS), sizes, rounds)


@experiment("building-blocks")
@options.rounds
def run_building_blocks(backend: Backend, rounds: int) -> Result:
    return experiments.run_building_blocks(backend, rounds)


@experiment("batch-scaling")
@click.option(
    "--batch-size", type=options.POSITIVE, default=Settings.batch_size, show_default=True, help="Of one device."
)
@click.option("--steps", type=options.POSITIVE, default=10, show_default=True, help="Steps in one timing.")
@seed
@data_dir
@options.rounds
def run_batch_scaling(
    backend: Backend, batch_size: int, steps: int, seed: int, data_dir: Path | None, rounds: int
) -> Result:
    return experiments.run_batch_scaling(backend, load_fashion_mnist(data_dir), batch_size, steps, seed, rounds)


@experiment("learning-rates")
@click.option(
    "--rates",
    type=options.Numbers(),
    default=",".join(map(str, RATES)),
    show_default=True,
    metavar="RATES",
    help="Learning rates. The rule is tried where one is as many times another one as there are devices.",
)
@click.option(
    "--batch-size", type=options.POSITIVE, default=DEFAULTS.batch_size, show_default=True, help="Of one device."
)
@click.option("--epochs", type=options.POSITIVE, default=DEFAULTS.epochs, show_default=True, help="Of each training.")
@click.option(
    "--limit", type=options.POSITIVE, default=DEFAULTS.limit, show_default=True, help="One device's batches an epoch."
)
@click.option(
    "--initial-scale",
    type=options.Number(),
    default=INITIAL_SCALE,
    show_default=True,
    help="Times the book's initial weights.",
)
@seed
@data_dir
@click.option(
    "--rounds", type=options.POSITIVE, default=2, show_default=True, help="Trainings at each point, seed by seed."
)
def run_learning_rates(
    backend: Backend,
    rates: tuple[float, ...],
    batch_size: int,
    epochs: int,
    limit: int,
    initial_scale: float,
    seed: int,
    data_dir: Path | None,
    rounds: int,
) -> Result:
    data = load_fashion_mnist(data_dir)
    settings = Settings(epochs, batch_size, limit=limit, seed=seed)
    trainings = trainings_in(len(backend.devices), rates, rounds)
    images = min(len(data.train_labels), batch_size * limit)
    with training_progress(Console(stderr=True, highlight=False), trainings * epochs, images) as progress:
        return experiments.run_learning_rates(backend, data, rates, settings, initial_scale, rounds, progress.on_batch)


@experiment("partitioning")
@click.option("--narrow", type=options.POSITIVE, default=1, show_default=True, help="Width of the first network.")
@click.option("--wide", type=options.POSITIVE, default=4, show_default=True, help="Width up to which it is doubled.")
@click.option("--batch", type=options.POSITIVE, default=64, show_default=True, help="Images, over all devices.")
@click.option("--micro-batches", type=options.POSITIVE, default=4, show_default=True, help="Pieces of a batch.")
@options.rounds
def run_partitioning(backend: Backend, narrow: int, wide: int, batch: int, micro_batches: int, rounds: int) -> Result:
    return experiments.run_partitioning(backend, narrow, wide, batch, micro_batches, rounds)


@experiment("batch-norm")
@click.option("--rows", type=options.POSITIVE, default=256, show_default=True, help="Most rows per device.")
@options.rounds
def run_batch_norm(backend: Backend, rows: int, rounds: int) -> Result:
    return experiments.run_batch_norm(backend, rows, rounds)
