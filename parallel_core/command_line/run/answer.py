"""What `run` does around a measurement, alone or as a rank: refuse, tell, write and judge."""

from contextlib import AbstractContextManager
from pathlib import Path

import click
from rich.console import Console

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.guess import Guess, asked_for, judge
from parallel_core.measurement.request import Files, Request
from parallel_core.measurement.result import Result
from parallel_core.report.plots import check_drawing, write_picture_file
from parallel_core.run.arguments import ShownTraining, Supplies, load_data, open_checkpoints
from parallel_core.system import files
from parallel_core.system.errors import DisturbedError, MeasurementError
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.layout import show_sentence
from parallel_core.terminal.progress import training_progress
from parallel_core.training.checkpoints import FILE, Checkpointing
from parallel_core.training.dataset import Dataset


def refuse(request: Request) -> None:
    """Raise RequestError for a request that contradicts itself, or a guess that is impossible."""
    if request.words.guess is not None:
        asked_for(request.words.guess, EXPERIMENTS[request.work.experiment])
    request.check()


def refuse_files(request: Request) -> None:
    """Raise RequestError if a file that is to be written is no SVG, or cannot be written."""
    wanted = request.files
    for picture in filter(None, (wanted.plot, wanted.timeline)):
        check_drawing(picture)
    read: list[Path] = []
    if wanted.checkpoint is not None:
        read.append(wanted.checkpoint / FILE)
    if request.work.data_dir is not None:
        read += request.work.data_dir.glob("*")
    files.check_outputs(wanted.json, wanted.plot, wanted.trace, wanted.timeline, others=read)


def _told_data(folder: Path | None) -> Dataset:
    """Load Fashion-MNIST, and say so if it is synthetic."""
    data = load_data(folder)
    if data.source.startswith("synthetic"):
        click.echo(f"This run trains on {data.source}.", err=True)
    return data


def _told_checkpoints(wanted: Files) -> Checkpointing | None:
    """Read the checkpoint to resume, and say so if there is none yet."""
    checkpointing = open_checkpoints(wanted)
    if checkpointing is not None and wanted.resume and checkpointing.resumed is None:
        click.echo(
            f"parallel-core: no checkpoint in {wanted.checkpoint} yet: training starts from the "
            "beginning",
            err=True,
        )
    return checkpointing


def _shown_training(epochs: int, images: int) -> AbstractContextManager[ShownTraining]:
    """Show the progress of a training."""
    return training_progress(terminal_console(stderr=True), epochs, images)


TOLD = Supplies(_told_data, _told_checkpoints, show_training=_shown_training)
"""What programs are supplied with by a process that tells the user of it."""


def write_result(result: Result, request: Request) -> Guess | None:
    """Write a result and its picture, and return the judgement of a guess, if any."""
    document = result.as_json()
    judged = None
    if request.words.guess is not None:
        experiment = EXPERIMENTS[result.experiment]
        judged = judge(*asked_for(request.words.guess, experiment), result)
        document["guess"] = judged.as_json()
    files.write_json(request.files.json, document)
    if request.files.plot is not None:
        write_picture_file(result, request.files.plot)
    return judged


def show_guess(judged: Guess | None, console: Console) -> None:
    """Print the judgement of a guess, if there is one."""
    if judged is not None:
        show_sentence(f"\n{judged.sentence}", console, "bold")


def refuse_invalid(result: Result) -> None:
    """Raise MeasurementError for an invalid result, and DisturbedError for one without a verdict.

    A count is a verdict without times, unless the result is invalid by more than a disturbance.
    """
    is_wrong = bool(result.problems) and not result.is_merely_disturbed
    if result.counts and (result.has_verdict or not is_wrong):
        return
    if result.problems:
        error = DisturbedError if result.is_merely_disturbed else MeasurementError
        raise error(
            f"{result.experiment} on {result.backend['name']} gave an invalid result: "
            f"{result.problems[0]}"
        )
    if not result.has_verdict:
        raise DisturbedError(
            f"{result.experiment} on {result.backend['name']}: {result.explanation}"
        )
