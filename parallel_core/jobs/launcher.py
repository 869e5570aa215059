"""Launch a job: start its processes through agents, show what rank 0 shows, say why it failed, leave nothing behind."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from parallel_core.errors import RequestError
from parallel_core.jobs.agent_connections import REMOTE_SHELL, Agent, agent_command, ask_for_stacks, running_agents
from parallel_core.jobs.display import SHOWN, Display
from parallel_core.jobs.failures.causes import Conclusion
from parallel_core.jobs.failures.watch import Watch
from parallel_core.jobs.job import Job, port_for, processes_of
from parallel_core.jobs.messages import FromAgent, Printed, Process
from parallel_core.system.signals import until_stopped
from parallel_core.terminal.console import terminal_console

__all__ = ["launch_job"]

STACKS_SECONDS = 3.0
QUIET_SECONDS = 0.3
MIN_LOOK = 0.05
STACK_LINES = 200


def launch_job(job: Job, shell: Sequence[str] = REMOTE_SHELL, restarts: int = 0) -> int:
    """Launch a job, on other hosts by a remote shell; return the exit status: 0, 1 for a failure, 2 for a bad request.

    Rank 0's standard output is passed on as it is. After a failure that is no refusal the job is started again with
    `--resume`, at most `restarts` times, unless rank 0 has printed something. SIGINT, SIGTERM and SIGHUP end it with
    128 and its number. Raises RequestError for `restarts` of a command without `--checkpoint`.
    """
    if restarts and not _names_checkpoint(job.command):
        raise RequestError("--restarts goes on from a checkpoint: give --checkpoint DIR to the run")
    display = Display(terminal_console(stderr=True), sys.stdout.buffer, sys.stderr.buffer)
    try:
        ended = asyncio.run(until_stopped(_restarting(job, shell, restarts, display)))
    finally:
        display.close()
    if not isinstance(ended, signal.Signals):
        return ended
    goes_on = "; --resume goes on from the last checkpoint" if _names_checkpoint(job.command) else ""
    display.say(f"interrupted by {ended.name}: all processes were ended{goes_on}")
    return 128 + ended


def _names_checkpoint(command: Sequence[str]) -> bool:
    """Return whether a command says where its checkpoints are."""
    return any(word == "--checkpoint" or word.startswith("--checkpoint=") for word in command)


async def _restarting(job: Job, shell: Sequence[str], restarts: int, display: Display) -> int:
    restart = 0
    while True:
        conclusion = await _run(job, shell, display)
        # A result that was shown already must not be shown twice.
        if conclusion.status != 1 or restart == restarts or display.printed:
            # A refusal that rank 0 has printed has been shown.
            if conclusion.status and conclusion.message != display.last_error:
                display.say(conclusion.message)
            return conclusion.status
        restart += 1
        display.say(f"{conclusion.message}; restart {restart} of {restarts}, from the last checkpoint")
        resume = () if "--resume" in job.command else ("--resume",)
        port = job.port if job.keeps_port else port_for(job.hosts[0], job.bind)
        job = replace(job, command=(*job.command, *resume), port=port)


async def _run(job: Job, shell: Sequence[str], display: Display) -> Conclusion:
    """Run a job once, and end all of it; return the conclusion, which is not shown yet."""
    loop = asyncio.get_running_loop()
    processes = [_with_terminal(process) for process in processes_of(job)]
    host_names = [host.name or os.uname().nodename for host in job.hosts]
    watch = Watch(processes, host_names, job.timeout, loop.time())
    changed = asyncio.Event()
    stacks: defaultdict[str, bytes] = defaultdict(bytes)
    conclusion: Conclusion | None = None

    def on_message(message: FromAgent) -> None:
        if conclusion is None:
            watch.record(message, loop.time())
            display.show(message)
        elif isinstance(message, Printed) and message.error:
            stacks[message.process] += message.data
        changed.set()

    def on_end(host: int, reason: str) -> None:
        # Afterwards this launcher ends it.
        if conclusion is None:
            watch.lose_agent(host, reason, loop.time())
            changed.set()

    commands = [agent_command(host.name, shell, job.python) for host in job.hosts]
    async with running_agents(commands, processes, on_message, on_end) as agents:
        while (decided := watch.decide(loop.time())) is None:
            # If this process was kept from running, messages come before the clock.
            await _within(max(MIN_LOOK, watch.next_look() - loop.time()), changed)
        conclusion = decided
        if conclusion.hang:
            await _collect(agents, watch.running_ranks, stacks, changed)
            conclusion = watch.after_stacks(conclusion, stacks, loop.time())
    if conclusion.status:
        _explain(conclusion, watch, display, stacks)
    return conclusion


async def _within(seconds: float, changed: asyncio.Event) -> bool:
    """Wait until something has changed; return whether it has."""
    with contextlib.suppress(TimeoutError):
        # wait_for() may lose an interruption that comes together with a message (Python 3.11).
        async with asyncio.timeout(seconds):
            await changed.wait()
    happened = changed.is_set()
    changed.clear()
    return happened


async def _collect(
    agents: Sequence[Agent], ranks: Sequence[str], stacks: Mapping[str, bytes], changed: asyncio.Event
) -> None:
    """Ask the ranks for their stacks and wait until all have written them, or STACKS_SECONDS."""
    loop = asyncio.get_running_loop()
    ask_for_stacks(agents)
    end = loop.time() + STACKS_SECONDS
    while (left := end - loop.time()) > 0:
        happened = await _within(min(left, QUIET_SECONDS), changed)
        if not happened and all(rank in stacks for rank in ranks):
            return


def _explain(conclusion: Conclusion, watch: Watch, display: Display, stacks: Mapping[str, bytes]) -> None:
    """Show the stacks of a hang, or the last words of the culprits."""
    if conclusion.hang:
        # The end of the output is read first, so the culprits come last.
        for rank in sorted(watch.running_ranks, key=lambda rank: rank in conclusion.culprits):
            written = stacks.get(rank, b"").decode(errors="replace")
            stack = written or "it gave no stacks: it was stopped, or had not begun to run"
            display.show_words(f"stacks of {rank} on {watch.host_of(rank)}", stack, STACK_LINES)
        return
    for name in conclusion.culprits:
        words = watch.last_words(name)
        # Rank 0's were shown already, and a refusal is the same line.
        if name != SHOWN and words.strip() and conclusion.status == 1:
            display.show_words(f"{name} on {watch.host_of(name)} said last", words)


def _with_terminal(process: Process) -> Process:
    """Give a process the width of the terminal, and whether it shows colours."""
    terminal = {"COLUMNS": str(shutil.get_terminal_size().columns)}
    if sys.stdout.isatty():
        terminal["FORCE_COLOR"] = "1"
    return msgspec.structs.replace(process, environment={**process.environment, **terminal})
