"""No process of a framework listens to other machines, or survives an agent that is killed.

Signals to the launcher, whose processes are killed whatever they do, are in `tests/parallel_core/jobs/test_signals.py`.
"""

import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.parallel_core.jobs.failures.jobs import ENDING_SECONDS, start

pytestmark = pytest.mark.long

LISTENERS = {"jax": 2, "torch": 3, "mxnet": 4}
"""JAX: each rank for the others. PyTorch: the store too. MXNet: a scheduler, a server and two workers."""
LONG = ("run", "data-parallel", "--epochs", "10000")


def test_a_job_listens_on_loopback_alone_and_leaves_when_its_agent_is_killed(framework: str, tmp_path: Path) -> None:
    """What the frameworks speak is not authenticated. One rank hangs, and the other waits for it inside a framework."""
    with start("hangs", framework, tmp_path, training=LONG) as job:
        job.wait_for_fault()
        addresses = listening_addresses(job.processes())
        assert len(addresses) >= LISTENERS[framework]
        assert all(ipaddress.ip_address(address).is_loopback for address in addresses), addresses
        # With the agent gone, ranks, scheduler and server must leave by themselves.
        (agent,) = psutil.Process(job.process.pid).children()
        agent.kill()
        job.wait_until(lambda: not job.processes(), job.deadline + ENDING_SECONDS)
        ended = job.end()
    assert ended.status == 1
    assert ended.verdict.startswith(f"the agent on {socket.gethostname()} ended by itself: it was killed")


def listening_addresses(processes: Sequence[psutil.Process]) -> list[str]:
    return [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
