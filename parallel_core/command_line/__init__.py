"""The command line: `parallel-core list`, `run`, `trace`, `compare`, `report`, `diff`, `launch` and `doctor`."""

import click

import backends
from parallel_core.command_line.compare import compare
from parallel_core.command_line.diff import diff
from parallel_core.command_line.doctor import doctor
from parallel_core.command_line.launch import launch
from parallel_core.command_line.report import report
from parallel_core.command_line.run import run
from parallel_core.command_line.trace import trace
from parallel_core.experiments import EXPERIMENTS

__all__ = ["cli"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="parallel-core", prog_name="parallel-core")
def cli() -> None:
    """See how deep-learning frameworks schedule work: the same experiments on MXNet, PyTorch and NumPy."""


@cli.command("list")
def list_all() -> None:
    """List the experiments by the book's chapter, and the backends."""
    for chapter in dict.fromkeys(experiment.chapter for experiment in EXPERIMENTS.values()):
        click.echo(chapter)
        for experiment in EXPERIMENTS.values():
            if experiment.chapter == chapter:
                answers = f" ({experiment.exercise})" if experiment.exercise else ""
                click.echo(f"  {experiment.name:<17}{experiment.question}{answers}")
    click.echo(f"Backends: {', '.join(backends.names())}")


cli.add_command(run)
cli.add_command(trace)
cli.add_command(compare)
cli.add_command(report)
cli.add_command(diff)
cli.add_command(launch)
cli.add_command(doctor)
