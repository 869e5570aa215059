"""The file of `--hosts`: one machine on each line, `HOST [slots=N]`; N, 1 by default, is the number of its ranks.

A host is what the remote shell takes: a name, an IPv4 address, or `USER@` before either. This machine may be listed as
`localhost`, by its name or by one of its addresses, and needs no remote shell. `#` begins a comment.
"""

import dataclasses
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from backends.process_groups.addresses import interface_of
from parallel_core.errors import RequestError
from parallel_core.jobs.job import Host

__all__ = ["hosts_for", "is_this_machine", "parse_hosts", "read_hosts"]

# No name begins with a minus sign, which the remote shell would take for an option.
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
    """Return the hosts for a number of ranks, with the slots that are taken; the first hosts are filled first.

    Raises RequestError if there are too few slots.
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
    """Return whether a host is this machine: `localhost`, its name, or one of its addresses.

    No name is looked up, so an alias of this machine is taken for another one.
    """
    own = socket.gethostname().lower()
    return name.lower() in ("localhost", own, own.split(".")[0]) or interface_of(name) is not None


def _hosts(lines: Iterable[str], source: str) -> Iterator[Host]:
    line_of: dict[str | None, int] = {}
    for number, line in enumerate(lines, 1):
        name, *rest = line.split("#")[0].split() or [""]
        if not name:
            continue
        place = f"{source}, line {number}"
        if not NAME.fullmatch(name):
            raise RequestError(f"{place}: {name!r} is no host name or IPv4 address")
        slots = SLOTS.fullmatch(rest[0]) if rest else None
        if len(rest) > 1 or (rest and slots is None):
            raise RequestError(f"{place}: {' '.join(rest)!r} is not understood; a line is HOST [slots=N]")
        host = Host(None if is_this_machine(name) else name, int(slots[1]) if slots else 1)
        key = host.name and host.name.lower()
        if key in line_of:
            raise RequestError(f"{place}: {name!r} stands in line {line_of[key]} already; give it more slots there")
        line_of[key] = number
        yield host
