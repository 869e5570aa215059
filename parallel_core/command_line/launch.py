"""`parallel-core launch`: run an experiment on several processes, which share one global batch."""

import argparse
import sys
from collections.abc import Sequence

import click

import backends
from backends.errors import unknown
from backends.installation.frameworks import is_installed
from backends.process_groups import check_group
from backends.process_groups.addresses import free_port, listen_at
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
@click.option(
    "--servers",
    type=options.PROCESSES,
    metavar="S",
    help="Number of MXNet's parameter servers. Default: 1.",
)
@options.option(
    "--timeout",
    type=options.NUMBER,
    default=TIMEOUT,
    metavar="SECONDS",
    help="Give up after this long without progress.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="P",
    help="Where the ranks meet. Default: a free one.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- run EXPERIMENT …")
def launch(
    processes: int | None,
    backend: str | None,
    servers: int | None,
    timeout: float,
    port: int | None,
    command: tuple[str, ...],
) -> int:
    """Run an experiment on several processes of this machine.

    There is one progress bar and one result, and no process is left behind. Across machines,
    torchrun, mpirun or MXNet's DMLC_ variables start `parallel-core run` itself.
    """
    known = on_several_processes()
    if command[:1] != ("run",):
        raise RequestError(
            "give the command of each process after --, such as: -- run data-parallel --epochs 2"
        )
    if len(command) > 1 and command[1] not in EXPERIMENTS and not command[1].startswith("-"):
        raise RequestError(unknown("experiment", command[1], known))
    if command[1:2] not in [(name,) for name in known]:
        raise RequestError(
            f"{' '.join(command[:2])!r} does not run on several processes: {', '.join(known)} do"
        )
    named = _backend_in(command)
    if backend and named and backend != named:
        raise RequestError(
            f"--backend is {backend} before the command and {named} in it: name it once"
        )
    name = backend or named
    if not name:
        here = ", ".join(filter(is_installed, offered("group"))) or "none"
        raise RequestError(f"say which framework: --backend NAME. Installed: {here}")
    if name not in backends.names():
        raise RequestError(unknown("backend", name, backends.names()))
    check_group(name)
    if servers is not None and name != "mxnet":
        raise RequestError(f"--servers are MXNet's, and {name} has none")
    if processes is None:
        raise RequestError("say how many: --processes N")
    if port is not None:
        listen_at(ADDRESS, port).close()
    backend_option = () if named else ("--backend", name)
    job = Job(
        command=(sys.executable, "-P", "-m", "parallel_core", *command, *backend_option),
        processes=processes,
        backend=name,
        servers=(servers or 1) if name == "mxnet" else 0,
        port=port or free_port(ADDRESS),
        timeout=timeout,
    )
    return launch_job(job)


def _backend_in(command: Sequence[str]) -> str | None:
    """Return the backend that a run command names; the last one counts."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--backend", nargs="?")
    found: str | None = parser.parse_known_args(command)[0].backend
    return found
