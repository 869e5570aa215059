"""Whether the processes of a job could meet: on this machine's loopback, and at torchrun's usual port."""

import errno
import socket
from collections.abc import Mapping

from parallel_core.doctor.finding import Diagnosis, Finding, Section, harmful_variable

__all__ = ["examine_ports"]

LOOPBACK = "127.0.0.1"
TORCHRUN_PORT = 29500
"""torchrun's default (torchrun, `--master-port`)."""
PS_LITE_PORT = "PORT"
"""The variable that ps-lite reads."""


def examine_ports(environment: Mapping[str, str], torchrun_port: int = TORCHRUN_PORT) -> Section:
    """Report whether a socket can be bound on loopback, whether torchrun's port is free, and whether PORT is set."""
    try:
        free_port = _bind(0)
    except OSError as error:
        diagnosis = Diagnosis(f"no socket can be bound at {LOOPBACK} ({error.strerror})", "sudo ip link set lo up")
        return Section("Ports", (Finding("loopback", "broken", f"{LOOPBACK} cannot be used", diagnosis),))
    findings = [
        Finding("loopback", "fine", f"processes can listen at {LOOPBACK}"),
        _examine_torchrun_port(torchrun_port, free_port),
    ]
    if PS_LITE_PORT in environment:
        value = environment[PS_LITE_PORT]
        cause = (
            f"MXNet's ps-lite takes {PS_LITE_PORT}={value} for the port that each of its processes listens at, and two "
            "on one machine cannot"
        )
        findings.append(harmful_variable(PS_LITE_PORT, value, cause))
    return Section("Ports", tuple(findings))


def _examine_torchrun_port(port: int, free_port: int) -> Finding:
    name, figures = "torchrun's port", {"port": port}
    try:
        _bind(port)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        diagnosis = Diagnosis(
            f"port {port} {why}, which torchrun takes unless it is given another",
            f"torchrun --master-port {free_port} --nproc-per-node 2 -m parallel_core run data-parallel --backend torch",
        )
        return Finding(name, "doubtful", f"{port} {why}", diagnosis, figures)
    return Finding(name, "fine", f"{port} is free", None, figures)


def _bind(port: int) -> int:
    with socket.socket() as bound:
        # Connections that are closing do not keep the port from a server, which sets this too.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
        return int(bound.getsockname()[1])
