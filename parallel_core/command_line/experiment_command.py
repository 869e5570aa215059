"""What every experiment's command does alike: load a backend, run, show the result, write it."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import backends
from backends import Backend, Device
from backends.profiling import check_profiler
from parallel_core import experiments
from parallel_core import plots as drawing
from parallel_core.command_line import options
from parallel_core.command_line.profiling import check_profiling, profile_and_show, profile_if_possible
from parallel_core.errors import MeasurementError, RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation.cost_model import LARGEST
from parallel_core.experiments.asynchronous_computation.eager_cpu import OTHERS
from parallel_core.experiments.automatic_parallelism.graph import Of
from parallel_core.experiments.explanation import explanation
from parallel_core.jobs.rank import check_job, described, joined, share_gpus
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import repeatable
from parallel_core.system import files
from parallel_core.terminal.explanation import show_explanation, show_variants
from parallel_core.terminal.result import show

__all__ = [
    "experiment",
    "run_async",
    "run_barriers",
    "run_cost_model",
    "run_dependencies",
    "run_eager_cpu",
    "run_graph",
    "run_independent_ops",
    "run_overlap",
    "run_parallel",
    "run_small_ops",
    "run_three_way",
]


def experiment(name: str) -> Callable[[Callable[..., Result]], click.Command]:
    """Make a command of a function (backend, its own options) -> result, with the options that all share."""

    def decorate(measure: Callable[..., Result]) -> click.Command:
        @wraps(measure)
        def command(
            backend: str,
            engine: str | None,
            devices: int | tuple[Device, ...] | None,
            device_kind: str,
            threads: int | None,
            workers: int,
            variants: tuple[str, ...],
            json_path: Path | None,
            plot_path: Path | None,
            trace_path: Path | None,
            trace_if_possible: Path | None,
            timeline_path: Path | None,
            **own: Any,
        ) -> None:
            where = check_job(name, backend)
            if where is not None and (trace_path or timeline_path):
                raise RequestError("the profilers see one process: leave out --trace and --timeline")
            if where is not None and where.rank:
                # The first rank shows and writes what all have found.
                json_path = plot_path = None
            if json_path is not None:
                files.check_writable(json_path)
            if plot_path is not None:
                drawing.check_drawing(plot_path)
                files.check_writable(plot_path)
            check_profiling(trace_path or trace_if_possible, timeline_path, json_path, plot_path)
            # Standard output belongs to the JSON where it goes there.
            console = Console(stderr=json_path == files.STANDARD_OUTPUT, highlight=False)
            devices = devices or (EXPERIMENTS[name].devices if where is None else 1)
            if where is not None and isinstance(devices, int):
                share_gpus(where, devices)
            loaded = backends.load(backend, devices, device_kind, engine, threads, workers, variants)
            if where is not None:
                with joined(loaded, where, name, own) as together:
                    result = measure(together, **own)
                    if together.group.rank == 0:
                        write(described(result, together), console, json_path, plot_path)
                refuse_invalid(result)
                return
            if trace_path is not None or timeline_path is not None:
                check_profiler(loaded)
            profiled = trace_path or trace_if_possible or timeline_path
            with repeatable() if profiled else nullcontext():
                result = measure(loaded, **own)
            write(result, console, json_path, plot_path)
            if trace_path is not None or timeline_path is not None:
                profile_and_show(loaded, result, console, trace_path, timeline_path)
            elif trace_if_possible is not None:
                profile_if_possible(loaded, result, console, trace_if_possible)
            refuse_invalid(result)

        shared = (
            click.option("--backend", required=True, metavar="NAME", help="mxnet, torch, numpy, or one of a plug-in."),
            click.option("--engine", metavar="async|sync", help="Default: async where the backend has it."),
            options.devices_of_a_process(EXPERIMENTS[name].devices),
            options.device_kind,
            options.threads,
            options.workers,
            options.variants,
            options.json_file,
            options.plot_file,
            options.trace_file,
            options.trace_if_possible,
            options.timeline_file,
            click.option(
                "--explain",
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=explain_and_exit,
                help="Say what is asked, how it is measured and how to read it; run nothing.",
            ),
        )
        decorated: Any = command
        for option in reversed(shared):
            decorated = option(decorated)
        return click.command(name, help=EXPERIMENTS[name].question)(decorated)

    return decorate


def write(result: Result, console: Console, json_path: Path | None, plot_path: Path | None) -> None:
    """Show a result, and write the files that are asked for."""
    show(result, console)
    if json_path is not None:
        text = json.dumps(result.as_json(), indent=1, ensure_ascii=False) + "\n"
        files.write_whole(json_path, lambda stream: stream.write(text.encode()))
    if plot_path is not None:
        kind = plot_path.suffix.removeprefix(".").lower()
        files.write_whole(plot_path, lambda stream: drawing.draw(result, stream, kind))


def refuse_invalid(result: Result) -> None:
    """Raise MeasurementError where a result is invalid."""
    if result.problems:
        raise MeasurementError(
            f"{result.experiment} on {result.backend['name']} gave an invalid result: {result.problems[0]}"
        )


def explain_and_exit(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print an experiment's explanation and end there, where it is wanted."""
    if wanted and ctx.info_name:
        console = Console(highlight=False)
        show_explanation(explanation(EXPERIMENTS[ctx.info_name]), console)
        show_variants(console)
        ctx.exit()


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
