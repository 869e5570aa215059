"""The file of `--hosts`: a machine a line, `HOST [slots=N]`, where N (1) is the number of ranks it takes.

A host is what the remote shell takes: a name, an IPv4 address, or `USER@` before either. This machine may be listed
among them, as `localhost`, by its own name or by an address of its own; then it needs no remote shell. `#` begins a
comment.
"""

import dataclasses
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from parallel_core.errors import RequestError
from parallel_core.jobs.addresses import interface_of
from parallel_core.jobs.job import Host

__all__ = ["hosts_for", "is_this_machine", "parse_hosts", "read_hosts"]

# Nothing that begins with a minus sign: the remote shell would take it for an option.
NAME = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
SLOTS = re.compile(r"slots=0*([1-9][0-9]{0,3})", re.ASCII)


def read_hosts(path: Path) -> tuple[Host, ...]:
    """Read the file of `--hosts`. Raises RequestError, which names the file and the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not text: {error.reason} at byte {error.start}") from error
    return parse_hosts(text.splitlines(), str(path))


def parse_hosts(lines: Iterable[str], source: str) -> tuple[Host, ...]:
    """Return the hosts of the lines of a file, which errors call `source`. Raises RequestError."""
    hosts = tuple(_hosts(lines, source))
    if not hosts:
        raise RequestError(f"{source} names no host; a line is HOST [slots=N]")
    return hosts


def hosts_for(hosts: Sequence[Host], processes: int) -> tuple[Host, ...]:
    """Return the hosts that so many ranks need, the first ones filled first, with the slots that are taken.

    Raises RequestError where the slots do not suffice.
    """
    total = sum(host.slots for host in hosts)
    if processes > total:
        raise RequestError(f"{processes} processes need as many slots, and the hosts have {total}; add slots=N to them")
    taken = []
    for host in hosts:
        slots = min(host.slots, processes)
        processes -= slots
        if slots:
            taken.append(dataclasses.replace(host, slots=slots))
    return tuple(taken)


def is_this_machine(name: str) -> bool:
    """Tell whether a host is this machine: `localhost`, its own name, or an address of its own.

    No name is looked up, so an alias of this machine is taken for another one.
    """
    own = socket.gethostname().lower()
    return name.lower() in ("localhost", own, own.split(".")[0]) or interface_of(name) is not None


def _hosts(lines: Iterable[str], source: str) -> Iterator[Host]:
    seen: dict[str | None, int] = {}
    for number, line in enumerate(lines, 1):
        name, *rest = line.split("#")[0].split() or [""]
        if not name:
            continue
        where = f"{source}, line {number}"
        if not NAME.fullmatch(name):
            raise RequestError(f"{where}: {name!r} is no host name or IPv4 address")
        slots = SLOTS.fullmatch(rest[0]) if rest else None
        if len(rest) > 1 or (rest and slots is None):
            raise RequestError(f"{where}: {' '.join(rest)!r} is not understood; a line is HOST [slots=N]")
        host = Host(None if is_this_machine(name) else name, int(slots[1]) if slots else 1)
        key = host.name and host.name.lower()
        if key in seen:
            raise RequestError(f"{where}: {name!r} stands in line {seen[key]} already; give it more slots there")
        seen[key] = number
        yield host
