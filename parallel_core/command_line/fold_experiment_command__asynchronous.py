"""The commands of the chapter "Asynchronous Computation"."""

import click

from backends import Backend
from parallel_core import experiments
from parallel_core.command_line import options
from parallel_core.command_line.experiment_command import experiment
from parallel_core.experiments.asynchronous_computation.cost_model import LARGEST
from parallel_core.experiments.asynchronous_computation.eager_cpu import OTHERS
from parallel_core.measurement.result import Result

__all__ = ["run_async", "run_barriers", "run_cost_model", "run_eager_cpu"]


@experiment("async")
@click.option("--size", type=options.POSITIVE, default=1000, show_default=True, help="Side of the matrices.")
@click.option("--steps", type=options.POSITIVE, default=10_000, show_default=True, help="Number of increments.")
@options.rounds
def run_async(backend: Backend, size: int, steps: int, rounds: int) -> Result:
    return experiments.run_async(backend, size, steps, rounds)


@experiment("barriers")
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen for products of about 2 ms.")
@click.option(
    "--deepest", type=options.POSITIVE, default=64, show_default=True, help="Products behind the first, at the most."
)
@options.rounds
def run_barriers(backend: Backend, size: int | None, deepest: int, rounds: int) -> Result:
    return experiments.run_barriers(backend, size, deepest, rounds)


@experiment("cost-model")
@click.option(
    "--largest", type=options.POSITIVE, default=LARGEST, show_default=True, help="Elements of a vector, at the most."
)
@options.rounds
def run_cost_model(backend: Backend, largest: int, rounds: int) -> Result:
    return experiments.run_cost_model(backend, largest, rounds)


@experiment("eager-cpu")
@click.option("--size", type=options.POSITIVE, default=1000, show_default=True, help="Side of the matrices.")
@click.option(
    "--against",
    metavar="NAMES",
    default=OTHERS,
    show_default=True,
    help="In fresh processes beside it: NAME:ENGINE with commas between them, all others, or none.",
)
@options.rounds
def run_eager_cpu(backend: Backend, size: int, against: str, rounds: int) -> Result:
    return experiments.run_eager_cpu(backend, size, against, rounds)
