"""`parallel-core launch`: run an experiment on several processes, which share one global batch."""

import sys
from collections.abc import Sequence

import click

import backends
from backends.groups.rendezvous import TIMEOUT
from parallel_core.command_line import options
from parallel_core.errors import RequestError
from parallel_core.launch.addresses import check_port, free_port
from parallel_core.launch.job import Host, Job
from parallel_core.launch.launcher import launch as launch_job

__all__ = ["launch"]

EXPERIMENTS = ("data-parallel", "allreduce")
LOOPBACK = "127.0.0.1"


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--processes", type=options.POSITIVE, required=True, metavar="N", help="Ranks, each with its --devices.")
@click.option("--backend", metavar="NAME", help="mxnet or torch; it may stand in the run command as well.")
@click.option("--servers", type=options.POSITIVE, metavar="S", help="Of MXNet: its parameter servers. Default: 1.")
@click.option(
    "--timeout",
    type=options.Number(),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Without any progress, after which the job is given up.",
)
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="K",
    help="How often a job that crashed is started again from its last checkpoint.",
)
@click.option("--port", type=click.IntRange(1, 65535), metavar="P", help="Where the ranks meet. Default: a free one.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- run EXPERIMENT …")
def launch(
    processes: int,
    backend: str | None,
    servers: int | None,
    timeout: float,
    restarts: int,
    port: int | None,
    command: tuple[str, ...],
) -> int:
    """Run an experiment on several processes: one progress bar, one result, and no process left behind."""
    check_command(command)
    name = agreed_backend(backend, command)
    if servers is not None and name != "mxnet":
        raise RequestError(f"--servers are MXNet's, and {name} has none")
    if port is not None:
        check_port(LOOPBACK, port)
    given = () if backend_in(command) else ("--backend", name)
    job = Job(
        command=(sys.executable, "-P", "-m", "parallel_core", *command, *given),
        hosts=(Host(None, processes),),
        backend=name,
        servers=(servers or 1) if name == "mxnet" else 0,
        address=LOOPBACK,
        bind=LOOPBACK,
        port=port or free_port(LOOPBACK),
        interface=None,
        timeout=timeout,
    )
    return launch_job(job, restarts=restarts)


def check_command(command: Sequence[str]) -> None:
    """Raise RequestError where this is no command that runs on several processes."""
    if command[:1] != ("run",):
        raise RequestError("give the command of each process after --, such as: -- run data-parallel --epochs 2")
    if len(command) < 2 or command[1] not in EXPERIMENTS:
        wanted = repr(command[1]) if len(command) > 1 else "no experiment"
        raise RequestError(f"{wanted} does not run on several processes (those that do: {', '.join(EXPERIMENTS)})")


def agreed_backend(option: str | None, command: Sequence[str]) -> str:
    """Return the backend, which may be named before the command or in it; RequestError where both differ."""
    named = backend_in(command)
    if option and named and option != named:
        raise RequestError(f"--backend is {option} before the command and {named} in it: name it once")
    name = option or named
    if not name:
        raise RequestError("say which framework: --backend mxnet or --backend torch")
    if name not in backends.names():
        raise RequestError(f"unknown backend {name!r} (known: {', '.join(backends.names())})")
    return name


def backend_in(command: Sequence[str]) -> str | None:
    """Return the backend that a run command names; the last one counts, as it does there."""
    found = None
    for word, following in zip(command, (*command[1:], ""), strict=True):
        if word == "--backend":
            found = following
        elif word.startswith("--backend="):
            found = word.removeprefix("--backend=")
    return found
