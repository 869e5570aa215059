"""The commands of the chapter "Automatic Parallelism"."""

import click

from backends import Backend
from parallel_core import experiments
from parallel_core.command_line import options
from parallel_core.command_line.experiment_command import experiment
from parallel_core.experiments.automatic_parallelism.graph import Of
from parallel_core.measurement.result import Result

__all__ = [
    "run_dependencies",
    "run_graph",
    "run_independent_ops",
    "run_overlap",
    "run_parallel",
    "run_small_ops",
    "run_three_way",
]


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


@experiment("independent-ops")
@click.option(
    "--workers-compared",
    type=options.Integers(),
    default="1,2",
    show_default=True,
    metavar="NUMBERS",
    help="Beside --workers; others than that are measured in fresh processes.",
)
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen for runs of about 0.2 s.")
@options.rounds
def run_independent_ops(backend: Backend, workers_compared: tuple[int, ...], size: int | None, rounds: int) -> Result:
    return experiments.run_independent_ops(backend, workers_compared, size, rounds)


@experiment("small-ops")
@click.option(
    "--sizes",
    type=options.Integers(),
    default="8,16,32,64,128,256,512,1024",
    show_default=True,
    metavar="NUMBERS",
    help="Sides of the matrices.",
)
@options.rounds
def run_small_ops(backend: Backend, sizes: tuple[int, ...], rounds: int) -> Result:
    return experiments.run_small_ops(backend, sizes, rounds)


@experiment("three-way")
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen.")
@click.option(
    "--copies", type=options.POSITIVE, help="Copies of each result. Default: so many that copying takes as long."
)
@options.rounds
def run_three_way(backend: Backend, size: int | None, copies: int | None, rounds: int) -> Result:
    return experiments.run_three_way(backend, size, copies, rounds)


@experiment("dependencies")
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen.")
@options.rounds
def run_dependencies(backend: Backend, size: int | None, rounds: int) -> Result:
    return experiments.run_dependencies(backend, size, rounds)


@experiment("graph")
@click.option(
    "--of",
    type=click.Choice(("mlp", "xy")),
    default="mlp",
    show_default=True,
    help="A two-layer MLP's training step, or z = x · y + 2.",
)
@click.option("--batch", type=options.POSITIVE, default=1024, show_default=True, help="Images in the MLP's step.")
@options.rounds
def run_graph(backend: Backend, of: Of, batch: int, rounds: int) -> Result:
    return experiments.run_graph(backend, of, batch, rounds)
