"""`parallel-core launch`: run an experiment on several processes, which share one global batch."""

import shlex
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click

import backends
from backends.errors import unknown
from backends.process_groups.addresses import local_address
from backends.process_groups.rendezvous import TIMEOUT
from parallel_core.command_line import options
from parallel_core.errors import RequestError
from parallel_core.jobs.addresses import check_bind, check_port, interface_address, is_wildcard, resolved
from parallel_core.jobs.agent_connections import REMOTE_SHELL
from parallel_core.jobs.hosts import hosts_for, read_hosts
from parallel_core.jobs.job import Host, Job, port_for
from parallel_core.jobs.launcher import launch_job
from parallel_core.jobs.rank.joining import on_several_processes

__all__ = ["launch"]

LOOPBACK_ADDRESS = "127.0.0.1"


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--processes", type=options.PROCESSES, metavar="N", help="Ranks. Default: one for each slot of --hosts.")
@click.option("--backend", metavar="NAME", help="mxnet or torch; the run command may name it instead.")
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
@click.option(
    "--hosts",
    "hosts_path",
    type=options.PATH,
    metavar="FILE",
    help="Machines, one on each line: HOST [slots=N]. Default: this one.",
)
@click.option(
    "--remote-shell",
    default=shlex.join(REMOTE_SHELL),
    show_default=True,
    metavar="COMMAND",
    help="Runs a command line on another host, as ssh does.",
)
@click.option(
    "--python", default=sys.executable, metavar="PATH", help="The Python of other hosts. Default: this one's."
)
@click.option("--interface", metavar="NAME", help="Network interface between the processes, such as eth0.")
@click.option("--bind", metavar="ADDRESS", help="Where rank 0 or the scheduler listens. Default: at its own address.")
@click.option(
    "--trusted-network",
    is_flag=True,
    help="Let PyTorch's rank 0 listen at all addresses, for anyone who reaches it.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- run EXPERIMENT …")
def launch(
    processes: int | None,
    backend: str | None,
    servers: int | None,
    timeout: float,
    restarts: int,
    port: int | None,
    hosts_path: Path | None,
    remote_shell: str,
    python: str,
    interface: str | None,
    bind: str | None,
    trusted_network: bool,
    command: tuple[str, ...],
) -> int:
    """Run an experiment on several processes.

    There is one progress bar and one result, and no process is left behind.
    """
    _check_command(command)
    name = _agreed_backend(backend, command)
    if servers is not None and name != "mxnet":
        raise RequestError(f"--servers are MXNet's, and {name} has none")
    hosts = _chosen_hosts(hosts_path, processes)
    address = _root_address(hosts, interface, bind)
    listens_at = address if bind is None else resolved(bind)
    if name == "mxnet" and is_wildcard(listens_at):
        raise RequestError("MXNet's scheduler listens at one address alone: name it with --bind or --interface")
    # The name of a host may mean a wildcard, too.
    for used in (address, listens_at):
        check_bind(used, trusted_network)
    if port is not None and hosts[0].name is None:
        check_port(listens_at, port)
    backend_option = () if _backend_in(command) else ("--backend", name)
    job = Job(
        command=(sys.executable, "-P", "-m", "parallel_core", *command, *backend_option),
        hosts=hosts,
        backend=name,
        servers=(servers or 1) if name == "mxnet" else 0,
        address=address,
        bind=listens_at,
        port=port or port_for(hosts[0], listens_at),
        interface=interface,
        timeout=timeout,
        python=python,
        keeps_port=port is not None,
    )
    return launch_job(job, _words_of(remote_shell), restarts)


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


def _chosen_hosts(path: Path | None, processes: int | None) -> tuple[Host, ...]:
    """Return the hosts, with one slot for each rank. Raises RequestError."""
    if path is not None:
        hosts = read_hosts(path)
        return hosts if processes is None else hosts_for(hosts, processes)
    if processes is None:
        raise RequestError("say how many: --processes N, or --hosts FILE")
    return (Host(None, processes),)


def _root_address(hosts: Sequence[Host], interface: str | None, bind: str | None) -> str:
    """Return the address at which the others reach the first host. Raises RequestError and ComputationError."""
    if bind is not None and not is_wildcard(bind):
        return resolved(bind)
    if hosts[0].name is not None:
        return resolved(hosts[0].name.rpartition("@")[2])
    if interface is not None:
        return interface_address(interface)
    others = [host.name for host in hosts if host.name is not None]
    return local_address(resolved(others[0].rpartition("@")[2])) if others else LOOPBACK_ADDRESS


def _words_of(remote_shell: str) -> list[str]:
    """Return the words of the remote shell's command. Raises RequestError if there are none."""
    try:
        words = shlex.split(remote_shell)
    except ValueError as error:
        raise RequestError(f"--remote-shell {remote_shell!r} cannot be read: {error}") from error
    if not words:
        raise RequestError("--remote-shell names no command")
    return words
