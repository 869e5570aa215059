"""Two hosts on one machine: network namespaces with an address each, joined by a link of a given
rate.

Each host has its half of the cores, so that what runs on one does not take time from the other. A
namespace lasts as long as a process is in it. The process that holds it ends when its standard
input does, so nothing is left behind even if the program that made both is killed. Needs root and
Linux's `ip`, `tc`, `unshare`, `nsenter` and `taskset` (packages iproute2 and util-linux).

As a program it starts a rank of a command on each host by hand, with the variables of torchrun, or
of MXNet's own launcher. A host is given by the process that holds it:

    python -m benchmarks.harness.two_hosts PROCESS PROCESS BACKEND COMMAND…
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import click

from backends.host import core_numbers, on_cores
from backends.process_groups.addresses import PORTS

ADDRESSES = ("10.77.0.1", "10.77.0.2")
"""Private ones, which nothing outside the two namespaces can see: any number of pairs can have the
same.
"""
PREFIX_LENGTH = 24
INTERFACE = "link0"
PROGRAMS = ("ip", "tc", "unshare", "nsenter", "taskset")
BURST_SECONDS = 0.0005
MIN_BURST = 16 * 1024
QUEUE_SECONDS = 0.05


class NoHostsError(click.ClickException):
    """Two hosts cannot be made here; the text says why."""


@dataclass(frozen=True)
class TwoHosts:
    """Two hosts. The name of each is its address, also by `hostname`, so that no name needs to be
    looked up.
    """

    holders: tuple[int, int]
    """The processes that hold the namespaces."""

    def on(self, host: int) -> tuple[str, ...]:
        """Return the beginning of a command that is run on a host, 0 or 1: in its namespaces, and
        on its cores.
        """
        holder = self.holders[host]
        cores = ",".join(map(str, sorted(os.sched_getaffinity(holder))))
        in_namespaces = ("nsenter", f"--target={holder}", "--net", "--uts", "--")
        return ("taskset", "--cpu-list", cores, *in_namespaces)

    def ranks(self, backend: str, *command: str) -> tuple[str, ...]:
        """Return a command that runs this one as a rank on each host, and shows what rank 0
        writes.
        """
        program = (sys.executable, "-m", "benchmarks.harness.two_hosts")
        return (*program, *map(str, self.holders), backend, *command)


@contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Make two hosts for a while; the link is as fast as the machine.

    What still runs on them in the end is killed. Raises NoHostsError, with the reason, if this
    machine does not let us make them.
    """
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        raise NoHostsError(
            f"two hosts on one machine need {' and '.join(missing)}: apt-get install iproute2 "
            "util-linux"
        )
    if os.geteuid() != 0:
        raise NoHostsError("two hosts on one machine need root, to make network namespaces")
    cores = core_numbers()
    even_cores, odd_cores = set(cores[::2]), set(cores[1::2] or cores)
    with namespace(ADDRESSES[0], even_cores) as holder, namespace(ADDRESSES[1], odd_cores) as other:
        hosts = TwoHosts((holder, other))
        ends = (INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", str(other))
        call(*hosts.on(0), "ip", "link", "add", *ends)
        for host, address in enumerate(ADDRESSES):
            network = f"{address}/{PREFIX_LENGTH}"
            call(*hosts.on(host), "ip", "address", "add", network, "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                call(*hosts.on(host), "ip", "link", "set", interface, "up")
        yield hosts


def set_link(hosts: TwoHosts, bits_per_second: float | None) -> None:
    """Limit the rate of both directions, each by itself; None takes the limit away.

    A token bucket (tbf) sends at the rate, half a millisecond's worth of it at once, and queues up
    to 50 ms. Raises NoHostsError if the kernel has none.
    """
    for host in (0, 1):
        at = (*hosts.on(host), "tc", "qdisc")
        with suppress(NoHostsError):  # There may be no limit yet.
            call(*at, "delete", "dev", INTERFACE, "root")
        if bits_per_second is not None:
            burst = max(MIN_BURST, round(bits_per_second / 8 * BURST_SECONDS))
            limit = burst + round(bits_per_second / 8 * QUEUE_SECONDS)
            bucket = f"tbf rate {bits_per_second:.0f}bit burst {burst}b limit {limit}b"
            call(*at, "add", "dev", INTERFACE, "root", *bucket.split())


def processes_in(holder: int) -> list[int]:
    """List the processes in a holder's namespace, but the holder itself."""
    network = network_of(holder)
    if network is None:
        return []
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [number for number in numbers if number != holder and network_of(number) == network]


@contextmanager
def namespace(name: str, cores: set[int]) -> Iterator[int]:
    """Hold the namespaces of a network and of a host's name, on some cores; yield the number of who
    does so.
    """
    # cat ends with its standard input, which the system closes when this process ends, however it
    # ends.
    hold = f"echo {name} >/proc/sys/kernel/hostname && exec cat"
    with on_cores(cores):
        holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", hold],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    with holder:
        try:
            # What comes back shows that it is cat by now, and in its namespace.
            holder.stdin.write(b"\n")
            if holder.stdout.read(1) != b"\n":
                message = holder.stderr.read().decode(errors="replace").strip()
                raise NoHostsError(f"a network namespace cannot be made here: {message}")
            yield holder.pid
        finally:
            for number in processes_in(holder.pid):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            holder.kill()


def network_of(process: int) -> int | None:
    """Return what identifies a process's network namespace; None for a process that has ended."""
    try:
        return Path(f"/proc/{process}/ns/net").stat().st_ino
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def call(*command: str) -> None:
    """Run a command to its end; raises NoHostsError with its message if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = " ".join((done.stderr or done.stdout).split())
        raise NoHostsError(f"{' '.join(command[command.index('--') + 1 :])}: {message}")


def main(holder: str, other: str, backend: str, *command: str) -> int:
    """Start all processes and wait for them; return the highest exit status, 1 for a process that
    was killed.

    The first host has rank 0, whose output is shown, and MXNet's scheduler and server. When one
    process fails, all others are killed.
    """
    hosts = TwoHosts((int(holder), int(other)))
    processes = []
    for host, variables in parts_of_job(backend):
        is_shown = variables.get("RANK") == "0"
        process = subprocess.Popen(
            (*hosts.on(host), *command),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=None if is_shown else subprocess.DEVNULL,
        )
        processes.append(process)
    try:
        while True:
            statuses = [process.poll() for process in processes]
            if None not in statuses or any(statuses):
                break
            sleep(0.05)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return max(1 if status < 0 else status for status in statuses if status is not None)


def parts_of_job(backend: str) -> list[tuple[int, dict[str, str]]]:
    """List the host of each process of a job, and the environment variables that tell it what it
    is.
    """
    address, size, port = ADDRESSES[0], str(len(ADDRESSES)), str(random.choice(PORTS))
    torchrun = {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": size}
    torchrun |= {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    ranks = [{**torchrun, "RANK": str(rank)} for rank in range(len(ADDRESSES))]
    if backend != "mxnet":
        return list(enumerate(ranks))
    ps_lite = {"DMLC_PS_ROOT_URI": address, "DMLC_PS_ROOT_PORT": port}
    ps_lite |= {"DMLC_NUM_WORKER": size, "DMLC_NUM_SERVER": "1"}
    # ps-lite numbers workers as they come, and the first host is to show the result.
    workers = [{**rank, **ps_lite, "DMLC_ROLE": "worker"} for rank in ranks]
    servers = [{**ps_lite, "DMLC_ROLE": role} for role in ("scheduler", "server")]
    return [*enumerate(workers), *((0, server) for server in servers)]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
