"""The agents of a job's hosts: started here or through a remote shell, read, and always ended.

A remote shell is a command that takes a host and a line for its shell, as ssh does.
"""

import asyncio
import os
import shlex
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from parallel_core.errors import MeasurementError
from parallel_core.jobs.messages import FromAgent, Process
from parallel_core.system.subprocesses import kill_group

__all__ = ["REMOTE_SHELL", "Agent", "agent_command", "ask_for_stacks", "running_agents"]

REMOTE_SHELL = ("ssh", "-o", "BatchMode=yes")
MODULE = "parallel_core.jobs.agent"
MAX_MESSAGE = 1 << 22
END_SECONDS = 5.0
KILL_SECONDS = 2.0
LAST_WORDS_SECONDS = 0.2
KEPT_LINES = 5

decode: Callable[[bytes], FromAgent] = msgspec.json.Decoder(FromAgent).decode


@dataclass
class Agent:
    """One host's agent, and the tasks that read what it writes."""

    process: asyncio.subprocess.Process
    tasks: tuple[asyncio.Task[None], ...]


def ask_for_stacks(agents: Sequence[Agent]) -> None:
    """Make all ranks write their stacks to standard error."""
    for agent in agents:
        assert agent.process.stdin
        if not agent.process.stdin.is_closing():
            agent.process.stdin.write(b"stacks\n")


def agent_command(host: str | None, shell: Sequence[str], python: str) -> list[str]:
    """Return the command that starts a host's agent, with that host's Python; `host` is None for this machine."""
    if host is None:
        return [sys.executable, "-P", "-m", MODULE]
    # The other host's agent needs this process's search path as well.
    path = os.environ.get("PYTHONPATH")
    words = ["exec", *(["env", f"PYTHONPATH={path}"] if path else []), python, "-P", "-m", MODULE]
    return [*shell, host, f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(words)}"]


@asynccontextmanager
async def running_agents(
    commands: Sequence[Sequence[str]],
    processes: Sequence[Process],
    on_message: Callable[[FromAgent], None],
    on_end: Callable[[int, str], None],
) -> AsyncIterator[list[Agent]]:
    """Start an agent for each host, with its processes; end all of them with the context.

    `on_message` is called with each message, and `on_end(host, reason)` when an agent ends by itself.
    Raises MeasurementError if an agent cannot be started.
    """
    agents: list[Agent] = []
    try:
        for host, command in enumerate(commands):
            own = tuple(process for process in processes if process.host == host)
            agents.append(await _start(host, command, own, on_message, on_end))
        yield agents
    finally:
        await asyncio.gather(*map(_end, agents))


async def _start(
    host: int,
    command: Sequence[str],
    processes: Sequence[Process],
    on_message: Callable[[FromAgent], None],
    on_end: Callable[[int, str], None],
) -> Agent:
    try:
        # A session of its own, so that Ctrl-C reaches only the launcher, which ends the agents in good order.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_MESSAGE,
            start_new_session=True,
        )
    except OSError as error:
        raise MeasurementError(f"cannot start {command[0]!r}: {error.strerror or error}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(msgspec.json.encode(processes) + b"\n")
    last_lines: deque[str] = deque(maxlen=KEPT_LINES)
    listening_to_errors = asyncio.create_task(_listen(process.stderr, last_lines))

    async def follow(output: asyncio.StreamReader) -> None:
        try:
            async for line in output:
                try:
                    message = decode(line)
                except msgspec.DecodeError:
                    # Login scripts print other lines.
                    last_lines.append(line.decode(errors="replace").strip())
                    continue
                on_message(message)
            # Its last words may come after its last message.
            await asyncio.wait([listening_to_errors], timeout=LAST_WORDS_SECONDS)
        finally:
            # The job must also end if reading the messages fails.
            on_end(host, last_lines[-1] if last_lines else "it was killed, or its connection broke")

    return Agent(process, (asyncio.create_task(follow(process.stdout)), listening_to_errors))


async def _listen(errors: asyncio.StreamReader, last_lines: deque[str]) -> None:
    async for line in errors:
        if line.strip():
            last_lines.append(line.decode(errors="replace").strip())


async def _end(agent: Agent) -> None:
    """Close an agent's standard input, which ends it and its processes; kill it if it does not end."""
    assert agent.process.stdin
    agent.process.stdin.close()
    # Its output is read until it ends, so that a full pipe cannot block it.
    left = {asyncio.ensure_future(agent.process.wait()), *agent.tasks}
    _, left = await asyncio.wait(left, timeout=END_SECONDS)
    if left:
        kill_group(agent.process.pid)
        _, left = await asyncio.wait(left, timeout=KILL_SECONDS)
    # A process that it started in another session may hold its pipes open for ever.
    for task in left:
        task.cancel()
    # An error in reading its messages must not be lost.
    for task in agent.tasks:
        if task.done() and not task.cancelled():
            task.result()
