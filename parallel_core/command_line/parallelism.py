"""The commands of the chapter "Automatic Parallelism"."""

import click

from backends import Backend
from parallel_core import experiments
from parallel_core.command_line import options
from parallel_core.command_line.experiment import experiment
from parallel_core.result import Result

__all__ = ["run_overlap", "run_parallel"]


@experiment("parallel")
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen for runs of about 0.2 s.")
@options.rounds
def run_parallel(backend: Backend, size: int | None, rounds: int) -> Result:
    return experiments.run_parallel(backend, size, rounds)


@experiment("overlap")
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen.")
@click.option(
    "--copies", type=options.POSITIVE, help="Copies of each result. Default: so many that copying takes as long."
)
@options.rounds
def run_overlap(backend: Backend, size: int | None, copies: int | None, rounds: int) -> Result:
    return experiments.run_overlap(backend, size, copies, rounds)
