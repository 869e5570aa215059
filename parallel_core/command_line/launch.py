"""`parallel-core launch`: run an experiment on several processes, which share one global batch."""

import argparse
import sys
from collections.abc import Sequence

import click

import backends
from backends.errors import unknown
from backends.installation.frameworks import is_installed
from backends.process_groups import check_group
from backends.process_groups.addresses import free_port
from backends.process_groups.rendezvous import TIMEOUT
from backends.registry import offered
from parallel_core.command_line import options
from parallel_core.experiments import EXPERIMENTS
from parallel_core.jobs.job import ADDRESS, Job
from parallel_core.jobs.launcher import launch_job
from parallel_core.jobs.rank import on_several_processes
from parallel_core.system.errors import RequestError


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--processes", type=options.PROCESSES, metavar="N", help="Number of ranks.")
@click.option(
    "--backend", metavar="NAME", help="mxnet or torch; the run command may name it instead."
)
@options.option(
    "--timeout",
    type=options.NUMBER,
    default=TIMEOUT,
    metavar="SECONDS",
    help="Give up after this long without progress.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- run EXPERIMENT …")
def launch(
    processes: int | None,
    backend: str | None,
    timeout: float,
    command: tuple[str, ...],
) -> int:
    """Run an experiment on several processes of this machine.

    There is one progress bar and one result, and no process is left behind. Across machines,
    torchrun, mpirun or MXNet's DMLC_ variables start `parallel-core run` itself.
    """
    _check_command(command)
    in_command = _backend_in(command)
    name = _one_backend(backend, in_command)
    if processes is None:
        raise RequestError("say how many: --processes N")
    backend_option = () if in_command else ("--backend", name)
    job = Job(
        command=(sys.executable, "-P", "-m", "parallel_core", *command, *backend_option),
        processes=processes,
        backend=name,
        port=free_port(ADDRESS),
        timeout=timeout,
    )
    return launch_job(job)


def _check_command(command: Sequence[str]) -> None:
    """Raise RequestError unless a command runs an experiment that several processes can run."""
    experiments = on_several_processes()
    verb, *arguments = command or ("",)
    if verb != "run":
        raise RequestError(
            "give the command of each process after --, such as: -- run data-parallel --epochs 2"
        )
    experiment = arguments[0] if arguments else ""
    is_name = bool(arguments) and not experiment.startswith("-")
    if is_name and experiment not in EXPERIMENTS:
        raise RequestError(unknown("experiment", experiment, experiments))
    if experiment not in experiments:
        begin = " ".join(command[:2])
        raise RequestError(
            f"{begin!r} does not run on several processes: {', '.join(experiments)} do"
        )


def _one_backend(before: str | None, in_command: str | None) -> str:
    """Return the backend that is named before the command or in it.

    Raises RequestError unless it is one that several processes can use.
    """
    if before and in_command and before != in_command:
        raise RequestError(
            f"--backend is {before} before the command and {in_command} in it: name it once"
        )
    name = before or in_command
    if not name:
        installed = ", ".join(filter(is_installed, offered("group"))) or "none"
        raise RequestError(f"say which framework: --backend NAME. Installed: {installed}")
    if name not in backends.names():
        raise RequestError(unknown("backend", name, backends.names()))
    check_group(name)
    return name


def _backend_in(command: Sequence[str]) -> str | None:
    """Return the backend that a command names last; None if it names none."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--backend", nargs="?")
    parsed, _ = parser.parse_known_args(command)
    return parsed.backend
