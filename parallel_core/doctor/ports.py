"""Whether processes of a job could meet: at this machine's loopback, and at torchrun's usual port."""

import errno
import socket
from collections.abc import Mapping

from parallel_core.doctor.finding import Diagnosis, Finding, Section

__all__ = ["TORCHRUN", "examine_ports"]

LOOPBACK = "127.0.0.1"
TORCHRUN = 29500
"""Where torchrun listens if nobody says otherwise (torchrun, `--master-port`)."""
BARE = "PORT"


def examine_ports(environment: Mapping[str, str], torchrun: int = TORCHRUN) -> Section:
    """Tell whether a socket can be bound at loopback, whether torchrun's port is free, and whether PORT is set."""
    try:
        free = _bind(0)
    except OSError as error:
        advice = Diagnosis(f"no socket can be bound at {LOOPBACK} ({error.strerror})", "sudo ip link set lo up")
        return Section("Ports", (Finding("loopback", "broken", f"{LOOPBACK} cannot be used", advice),))
    findings = [Finding("loopback", "fine", f"{LOOPBACK} can be listened at"), _torchrun(torchrun, free)]
    if BARE in environment:
        cause = (
            f"MXNet's ps-lite takes {BARE}={environment[BARE]} for the port that each of its processes listens at, "
            "and two on one machine cannot"
        )
        advice = Diagnosis(cause, f"unset {BARE}")
        findings.append(Finding(BARE, "doubtful", environment[BARE], advice, {"value": environment[BARE]}))
    return Section("Ports", tuple(findings))


def _torchrun(port: int, free: int) -> Finding:
    name, figures = "torchrun's port", {"port": port}
    try:
        _bind(port)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        cause = f"port {port} {why}, which torchrun takes unless it is given another"
        command = f"torchrun --master-port {free} --nproc-per-node 2 -m parallel_core run data-parallel --backend torch"
        return Finding(name, "doubtful", f"{port} {why}", Diagnosis(cause, command), figures)
    return Finding(name, "fine", f"{port} is free", None, figures)


def _bind(port: int) -> int:
    with socket.socket() as bound:
        # Connections that are closing do not keep the port from a server, which sets this too.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
        return int(bound.getsockname()[1])
