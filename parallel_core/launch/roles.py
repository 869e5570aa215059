"""One process of a job whose parts people start by hand on several machines, and the link that ties them together.

The scheduler's launch holds the link, at the port above the root's; all others join it there (`link/`).
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
from rich.console import Console

from parallel_core.errors import MeasurementError, RequestError
from parallel_core.launch.addresses import check_port, interface_address, is_wildcard, listening, local_address
from parallel_core.launch.agents import Agents, agent_command, running_agents
from parallel_core.launch.display import SHOWN, Display
from parallel_core.launch.job import Host, Job, Process, processes_of
from parallel_core.launch.launcher import with_terminal
from parallel_core.launch.link.hub import hold_together
from parallel_core.launch.link.member import take_part
from parallel_core.launch.link.messages import LONGEST_CAUSE, FromMember, Hello, Role, Start, printable
from parallel_core.launch.reports import (
    Arrived,
    Ended,
    Failed,
    FromAgent,
    Joined,
    Printed,
    Progress,
    Reported,
    Unstartable,
)
from parallel_core.launch.stopping import until_stopped

__all__ = ["launch_role", "link_port", "process_of"]

MOST_PORT = 65535
STACKS_SECONDS = 1.0


def launch_role(role: Role, job: Job, workers: int) -> int:
    """Start this machine's part in a job of so many workers, and return the exit status when the whole job is over.

    The job's `hosts` are not looked at: who joins says where he is. Raises MeasurementError with the cause where the
    job failed, and RequestError where it cannot be.
    """
    _check(role, job)
    display = Display(Console(stderr=True, highlight=False), sys.stdout.buffer, sys.stderr.buffer)
    try:
        stopped_by = asyncio.run(until_stopped(_launch(role, job, workers, display)))
    finally:
        display.close()
    if stopped_by is not None:
        display.say(f"interrupted by {stopped_by.name}: the whole job was ended")
    return 0 if stopped_by is None else 1


def link_port(job: Job) -> int:
    """Return the port of the link. Raises RequestError where the root's port leaves none."""
    if job.port >= MOST_PORT:
        raise RequestError(f"--root needs a port below {MOST_PORT}: the launches meet at the port above it")
    return job.port + 1


def process_of(start: Start, job: Job) -> Process:
    """Return the process that this launch has to start. Raises MeasurementError where the hub asks for another one."""
    hosts = tuple(Host("", slots) for slots in start.slots)
    for process in processes_of(replace(job, hosts=hosts)):
        if process.name == start.name:
            return msgspec.structs.replace(process, host=0)
    raise MeasurementError(f"the scheduler's launch asks for {printable(start.name)!r}, which is not in this job")


def _check(role: Role, job: Job) -> None:
    if job.backend != "mxnet":
        raise RequestError(
            f"--role is for MXNet, whose parts have roles; with {job.backend} start each process with torchrun"
        )
    if is_wildcard(job.address):
        raise RequestError("--root is where the others reach the scheduler: name one address of its machine")
    port = link_port(job)
    if job.interface:
        interface_address(job.interface)
    if role == "scheduler":
        for wanted in (job.port, port):
            check_port(job.address, wanted)
    else:
        local_address(job.address)


async def _launch(role: Role, job: Job, workers: int, display: Display) -> None:
    hello = Hello(role, os.uname().nodename, workers, job.servers)
    part = take_part(job.address, link_port(job), hello, Part(role, job, display), job.timeout)
    if role != "scheduler":
        await part
        return
    server = listening(job.address, link_port(job))
    hub = asyncio.create_task(hold_together(server, workers, job.servers, job.timeout))
    try:
        await part
    finally:
        # The others are told before this launch ends, also where it is interrupted.
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]
            hub.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hub


@dataclass
class Part:
    """The process of this launch, which an agent runs as it runs a launcher's."""

    role: Role
    job: Job
    display: Display
    agents: Agents = field(default_factory=Agents)

    def joined(self) -> None:
        """Say so: whoever started this by hand now goes on to the next machine."""
        self.display.say(f"this {self.role} has joined the job at {self.job.address}:{self.job.port}")

    async def run(self, start: Start, tell: Callable[[FromMember], None]) -> None:
        """Run the process until it has ended, and tell what the hub's watch has to know. Raises MeasurementError."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        errors = b""
        process = with_terminal(process_of(start, self.job))

        def on_message(message: FromAgent) -> None:
            nonlocal errors
            self._show(message)
            if isinstance(message, Printed):
                errors = (errors + message.data * message.error)[-LONGEST_CAUSE:]
            elif not isinstance(message, Reported):
                if errors:
                    tell(Printed(message.process, errors, True))
                if not ended.done():
                    ended.set_result(None)
            for short in for_the_hub(message):
                tell(short)

        def on_end(_: int, reason: str) -> None:
            if not ended.done():
                ended.set_exception(MeasurementError(f"lost its agent: {reason}"))

        command = agent_command(None, (), sys.executable)
        async with running_agents([command], [process], on_message, on_end) as self.agents:
            self.display.say(f"all have joined; this is {start.name}")
            await ended

    async def print_stacks(self) -> None:
        """Have a rank print its stacks, which are shown as all that it prints to standard error."""
        self.agents.ask_for_stacks()
        await asyncio.sleep(STACKS_SECONDS)

    def _show(self, message: FromAgent) -> None:
        if message.process == SHOWN:
            self.display.show(message)
        elif isinstance(message, Printed) and message.error:
            sys.stderr.buffer.write(message.data)
            sys.stderr.buffer.flush()


def for_the_hub(message: FromAgent) -> tuple[FromMember, ...]:
    """Return what the hub has to know of a message."""
    match message:
        case Reported(process=process, report=Failed() as failed):
            return (Reported(process, msgspec.structs.replace(failed, message=printable(failed.message))),)
        case Reported(report=Arrived() | Joined() | Progress()) | Ended():
            return (message,)
        case Unstartable(process=process, reason=reason):
            return (Unstartable(process, printable(reason)),)
        case _:
            return ()
