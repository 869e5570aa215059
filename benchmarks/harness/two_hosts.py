"""Two hosts on one machine: network namespaces with an address each, joined by a link of a given rate.

Each host has its half of the cores, so that what runs on one does not take time from the other. A namespace lasts as
long as a process is in it. The process that holds it ends when its standard input does, so nothing is left behind even
if the program that made both is killed. Needs root and Linux's `ip`, `tc`, `unshare`, `nsenter` and `taskset` (packages
iproute2 and util-linux). As a program it is a remote shell for them, called as `ssh` is:

    python -m benchmarks.harness.two_hosts HOST=PROCESS,… HOST COMMAND

It becomes a shell that runs COMMAND in the namespaces and on the cores of the process that stands for HOST.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from backends.host import core_numbers, on_cores

ADDRESSES = ("10.77.0.1", "10.77.0.2")
"""Private ones, which nothing outside the two namespaces can see: any number of pairs can have the same."""
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
    """Two hosts. The name of each is its address, also by `hostname`, so that no name needs to be looked up."""

    names: tuple[str, str]
    interface: str
    """The name of the interface that joins them, on both."""
    holders: tuple[int, int]
    """The processes that hold the namespaces."""

    @property
    def shell(self) -> tuple[str, ...]:
        """A remote shell: with HOST and COMMAND after it, it runs the command there, as `ssh` does."""
        return (sys.executable, "-m", "benchmarks.harness.two_hosts", self._mapping)

    def ranks(self, backend: str, *command: str) -> tuple[str, ...]:
        """Return a command that runs this one as a rank on each host, and shows what rank 0 writes."""
        return (sys.executable, "-m", "benchmarks.harness.ranks_on_hosts", self._mapping, backend, *command)

    @property
    def _mapping(self) -> str:
        return ",".join(f"{host}={process}" for host, process in zip(self.names, self.holders, strict=True))

    def on(self, host: int) -> tuple[str, ...]:
        """Return the beginning of a command that is run on a host, 0 or 1."""
        return inside(self.holders[host])


def inside(process: int) -> tuple[str, ...]:
    """Return the beginning of a command that is run in a process's namespaces, and on its cores."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(process))))
    return ("taskset", "--cpu-list", cores, "nsenter", f"--target={process}", "--net", "--uts", "--")


@contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Make two hosts for a while; the link is as fast as the machine.

    What still runs on them in the end is killed. Raises NoHostsError, with the reason, if this machine does not let us
    make them.
    """
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        raise NoHostsError(
            f"two hosts on one machine need {' and '.join(missing)}: apt-get install iproute2 util-linux"
        )
    if os.geteuid() != 0:
        raise NoHostsError("two hosts on one machine need root, to make network namespaces")
    with ExitStack() as stack:
        cores = core_numbers()
        first, second = (
            stack.enter_context(namespace(address, set(cores[place::2] or cores)))
            for place, address in enumerate(ADDRESSES)
        )
        hosts = TwoHosts(ADDRESSES, INTERFACE, (first, second))
        ends = (INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", str(second))
        call(*hosts.on(0), "ip", "link", "add", *ends)
        for host, address in enumerate(ADDRESSES):
            call(*hosts.on(host), "ip", "address", "add", f"{address}/{PREFIX_LENGTH}", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                call(*hosts.on(host), "ip", "link", "set", interface, "up")
        yield hosts


def set_link(hosts: TwoHosts, bits_per_second: float | None) -> None:
    """Limit the rate of both directions, each by itself; None takes the limit away.

    A token bucket (tbf) sends at the rate, half a millisecond's worth of it at once, and queues up to 50 ms. Raises
    NoHostsError if the kernel has none.
    """
    for host in (0, 1):
        at = (*hosts.on(host), "tc", "qdisc")
        with suppress(NoHostsError):  # There may be no limit yet.
            call(*at, "delete", "dev", INTERFACE, "root")
        if bits_per_second is not None:
            burst = max(MIN_BURST, round(bits_per_second / 8 * BURST_SECONDS))
            limit = burst + round(bits_per_second / 8 * QUEUE_SECONDS)
            bucket = ("tbf", "rate", f"{bits_per_second:.0f}bit", "burst", f"{burst}b", "limit", f"{limit}b")
            call(*at, "add", "dev", INTERFACE, "root", *bucket)


def processes_in(holder: int) -> list[int]:
    """List the processes in a holder's namespace, but the holder itself."""
    mine = network_of(holder)
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [number for number in numbers if number != holder and mine is not None and network_of(number) == mine]


@contextmanager
def namespace(name: str, cores: set[int]) -> Iterator[int]:
    """Hold the namespaces of a network and of a host's name, on some cores; yield the number of who does so."""
    # cat ends with its standard input, which the system closes when this process ends, however it ends.
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


def main(mapping: str, host: str, *command: str) -> None:
    """Become the shell; like ssh, join the command's words with spaces, and end with 255 for an unknown host."""
    holders = dict(pair.split("=") for pair in mapping.split(","))
    if host not in holders:
        print(f"{host} is none of {', '.join(holders)}", file=sys.stderr)
        sys.exit(255)
    words = (*inside(int(holders[host])), "sh", "-c", " ".join(command))
    os.execvp(words[0], words)


if __name__ == "__main__":
    main(*sys.argv[1:])
