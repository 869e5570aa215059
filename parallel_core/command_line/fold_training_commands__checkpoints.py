"""The options that keep a training in a file, and go on with it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from parallel_core.command_line import options
from parallel_core.errors import RequestError
from parallel_core.training.checkpoints import FILE, Checkpointing, from_bytes, open_directory, write_checkpoint

__all__ = ["checkpoint_options", "checkpointing"]

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
