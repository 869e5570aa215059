"""The commands of the chapter "Asynchronous Computation"."""

import click

from backends import Backend
from parallel_core import experiments
from parallel_core.command_line import options
from parallel_core.command_line.experiment import experiment
from parallel_core.result import Result

__all__ = ["run_async"]


@experiment("async")
@click.option("--size", type=options.POSITIVE, default=1000, show_default=True, help="Side of the matrices.")
@click.option("--steps", type=options.POSITIVE, default=10_000, show_default=True, help="Number of increments.")
@options.rounds
def run_async(backend: Backend, size: int, steps: int, rounds: int) -> Result:
    return experiments.run_async(backend, size, steps, rounds)
