"""`parallel-core launch`: run an experiment on several processes, which share one global batch."""

import sys
from collections.abc import Sequence
from itertools import pairwise

import click

import backends
from backends.errors import unknown
from backends.process_groups.addresses import free_port, listen_at
from backends.process_groups.rendezvous import TIMEOUT
from parallel_core.command_line import options
from parallel_core.jobs.job import ADDRESS, Job
from parallel_core.jobs.launcher import launch_job
from parallel_core.jobs.rank.joining import on_several_processes
from parallel_core.system.errors import RequestError

__all__ = ["launch"]


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--processes", type=options.PROCESSES, metavar="N", help="Number of ranks.")
@click.option("--backend", metavar="NAME", help="jax, mxnet or torch; the run command may name it instead.")
@click.option("--servers", type=options.PROCESSES, metavar="S", help="Number of MXNet's parameter servers. Default: 1.")
@click.option(
    "--timeout",
    type=options.NUMBER,
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Give the job up after so long without progress.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    metavar="K",
    help="Start the job again from its last checkpoint after a failure, at most so often.",
)
@click.option("--port", type=click.IntRange(1, 65535), metavar="P", help="Where the ranks meet. Default: a free one.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- run EXPERIMENT …")
def launch(
    processes: int | None,
    backend: str | None,
    servers: int | None,
    timeout: float,
    restarts: int,
    port: int | None,
    command: tuple[str, ...],
) -> int:
    """Run an experiment on several processes of this machine.

    There is one progress bar and one result, and no process is left behind. Across machines, torchrun, mpirun or
    MXNet's DMLC_ variables start `parallel-core run` itself.
    """
    _check_command(command)
    name = _agreed_backend(backend, command)
    if servers is not None and name != "mxnet":
        raise RequestError(f"--servers are MXNet's, and {name} has none")
    if processes is None:
        raise RequestError("say how many: --processes N")
    if port is not None:
        listen_at(ADDRESS, port).close()
    backend_option = () if _backend_in(command) else ("--backend", name)
    job = Job(
        command=(sys.executable, "-P", "-m", "parallel_core", *command, *backend_option),
        processes=processes,
        backend=name,
        servers=(servers or 1) if name == "mxnet" else 0,
        port=port or free_port(ADDRESS),
        timeout=timeout,
        keeps_port=port is not None,
    )
    return launch_job(job, restarts)


def _check_command(command: Sequence[str]) -> None:
    """Raise RequestError if this is no command that runs on several processes."""
    if command[:1] != ("run",):
        raise RequestError("give the command of each process after --, such as: -- run data-parallel --epochs 2")
    known = on_several_processes()
    if len(command) < 2 or command[1] not in known:
        experiment = repr(command[1]) if len(command) > 1 else "no experiment"
        raise RequestError(f"{experiment} does not run on several processes (those that do: {', '.join(known)})")


def _agreed_backend(option: str | None, command: Sequence[str]) -> str:
    """Return the backend, which may be named before the command or in it. Raises RequestError if they differ."""
    named = _backend_in(command)
    if option and named and option != named:
        raise RequestError(f"--backend is {option} before the command and {named} in it: name it once")
    name = option or named
    if not name:
        raise RequestError("say which framework: --backend mxnet or --backend torch")
    if name not in backends.names():
        raise RequestError(unknown("backend", name, backends.names()))
    return name


def _backend_in(command: Sequence[str]) -> str | None:
    """Return the backend that a run command names; the last one counts."""
    name = None
    for word, following in pairwise((*command, "")):
        if word == "--backend":
            name = following
        elif word.startswith("--backend="):
            name = word.removeprefix("--backend=")
    return name
