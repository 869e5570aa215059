"""`parallel-core run`: options in, a result out. It decides nothing about experiments."""

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import backends
from backends import Backend
from parallel_core import experiments, files
from parallel_core.collectives import ALGORITHMS
from parallel_core.command_line import options
from parallel_core.dataset import load_fashion_mnist
from parallel_core.errors import MeasurementError
from parallel_core.exchange import Exchange
from parallel_core.learning_curve import check_plotting, draw_learning_curve
from parallel_core.result import Result
from parallel_core.terminal.result import show
from parallel_core.terminal.training_progress import training_progress
from parallel_core.training import Settings

__all__ = ["run"]


class ExperimentGroup(click.Group):
    """Commands that are called experiments when one is not known."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the experiment, or say which ones there are."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise click.UsageError(f"unknown experiment {args[0]!r} (known: {', '.join(self.commands)})")
        return super().resolve_command(ctx, args)


@click.group("run", cls=ExperimentGroup)
def run() -> None:
    """Run one experiment on one backend."""


def experiment(name: str) -> Callable[[Callable[..., Result]], click.Command]:
    """Make a command of a function (backend, its own options) -> result, with the options that all share."""

    def decorate(measure: Callable[..., Result]) -> click.Command:
        @wraps(measure)
        def command(
            backend: str,
            engine: str | None,
            devices: int,
            device_kind: str,
            threads: int | None,
            json_path: Path | None,
            **own: Any,
        ) -> None:
            if json_path is not None:
                files.check_writable(json_path)
            # Standard output belongs to the JSON where it goes there.
            console = Console(stderr=json_path == files.STANDARD_OUTPUT, highlight=False)
            loaded = backends.load(backend, devices, device_kind, engine, threads)
            result = measure(loaded, **own)
            show(result, console)
            if json_path is not None:
                text = json.dumps(result.as_json(), indent=1, ensure_ascii=False) + "\n"
                files.write_whole(json_path, lambda stream: stream.write(text.encode()))
            if result.problems:
                raise MeasurementError(f"{name} on {backend} gave an invalid result: {result.problems[0]}")

        shared = (
            click.option("--backend", required=True, metavar="NAME", help="mxnet, torch, numpy, or one of a plug-in."),
            click.option("--engine", metavar="async|sync", help="Default: async where the backend has it."),
            options.devices,
            options.device_kind,
            options.threads,
            options.json_file,
        )
        decorated: Any = command
        for option in reversed(shared):
            decorated = option(decorated)
        return run.command(name, help=experiments.EXPERIMENTS[name].question)(decorated)

    return decorate


ROUNDS = click.option(
    "--rounds", type=options.POSITIVE, default=5, show_default=True, help="How often everything is timed."
)


@experiment("async")
@click.option("--size", type=options.POSITIVE, default=1000, show_default=True, help="Side of the matrices.")
@click.option("--steps", type=options.POSITIVE, default=10_000, show_default=True, help="Number of increments.")
@ROUNDS
def run_async(backend: Backend, size: int, steps: int, rounds: int) -> Result:
    return experiments.run_async(backend, size, steps, rounds)


@experiment("parallel")
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen for runs of about 0.2 s.")
@ROUNDS
def run_parallel(backend: Backend, size: int | None, rounds: int) -> Result:
    return experiments.run_parallel(backend, size, rounds)


@experiment("overlap")
@click.option("--size", type=options.POSITIVE, help="Side of the matrices. Default: chosen.")
@click.option(
    "--copies", type=options.POSITIVE, help="Copies of each result. Default: so many that copying takes as long."
)
@ROUNDS
def run_overlap(backend: Backend, size: int | None, copies: int | None, rounds: int) -> Result:
    return experiments.run_overlap(backend, size, copies, rounds)


@experiment("data-parallel")
@click.option("--epochs", type=options.POSITIVE, default=Settings.epochs, show_default=True)
@click.option(
    "--batch-size", type=options.POSITIVE, default=Settings.batch_size, show_default=True, help="Over all devices."
)
@click.option("--lr", type=options.Number(), default=Settings.learning_rate, show_default=True, help="Learning rate.")
@click.option("--limit", type=options.POSITIVE, help="Batches an epoch. Default: all.")
@click.option("--seed", type=click.IntRange(min=0), default=Settings.seed, show_default=True)
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
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the four files of Fashion-MNIST are.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), metavar="FILE", help="Learning curve, PNG.")
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
    plot_path: Path | None,
) -> Result:
    if plot_path is not None:
        check_plotting()
        files.check_writable(plot_path)
    data = load_fashion_mnist(data_dir)
    settings = Settings(epochs, batch_size, lr, limit, seed, exchange, width)
    images = min(len(data.train_labels), batch_size * (limit or len(data.train_labels)))
    with training_progress(Console(stderr=True, highlight=False), epochs, images) as progress:
        result = experiments.run_data_parallel(backend, data, settings, progress.on_batch, progress.on_epoch)
    if plot_path is not None:
        files.write_whole(plot_path, lambda stream: draw_learning_curve(result, stream))
    return result


@experiment("allreduce")
@click.option(
    "--algorithm",
    "algorithms",
    type=options.Names("algorithm", lambda: tuple(ALGORITHMS)),
    multiple=True,
    metavar="NAMES",
    help=f"One or more of {', '.join(ALGORITHMS)}. Default: all.",
)
@click.option(
    "--sizes",
    type=options.Sizes(),
    default="4KiB..256MiB",
    show_default=True,
    metavar="SIZES",
    help="Of each device's vector: a range, in factors of 4, or a list such as 4KiB,1MiB,100MB.",
)
@ROUNDS
def run_allreduce(
    backend: Backend, algorithms: tuple[tuple[str, ...], ...], sizes: tuple[int, ...], rounds: int
) -> Result:
    names = tuple(name for some in algorithms for name in some)
    return experiments.run_allreduce(backend, names or tuple(ALGORITHMS), sizes, rounds)
