"""Launch a job: start its processes, show what rank 0 shows, say in one line why it failed, leave nothing behind."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import final

from backends.process_groups.addresses import free_port
from parallel_core.jobs.display import Display
from parallel_core.jobs.job import ADDRESS, Job, processes_of
from parallel_core.jobs.processes import Running, running
from parallel_core.jobs.reports import Report
from parallel_core.jobs.watch import Conclusion, Watch
from parallel_core.system.errors import RequestError
from parallel_core.system.signals import until_stopped
from parallel_core.terminal.console import terminal_console

__all__ = ["launch_job"]

SHOWN = "rank 0"
"""The rank whose output the user sees."""
STACKS_SECONDS = 3.0
QUIET_SECONDS = 0.3
MIN_LOOK = 0.05
STACK_LINES = 200


def launch_job(job: Job, restarts: int = 0) -> int:
    """Launch a job on this machine; return the exit status: 0, 1 for a failure, 2 for a bad request.

    Rank 0's standard output is passed on as it is. After a failure that is no refusal the job is started again with
    `--resume`, at most `restarts` times, unless rank 0 has printed something. SIGINT, SIGTERM and SIGHUP end it with
    128 and its number. Raises RequestError for `restarts` of a command without `--checkpoint`, and MeasurementError
    for a command that cannot be started.
    """
    keeps_checkpoint = any(word == "--checkpoint" or word.startswith("--checkpoint=") for word in job.command)
    if restarts and not keeps_checkpoint:
        raise RequestError("--restarts goes on from a checkpoint: give --checkpoint DIR to the run")
    display = Display(terminal_console(stderr=True), sys.stdout.buffer, sys.stderr.buffer)
    try:
        ended = asyncio.run(until_stopped(_restarting(job, restarts, display)))
    finally:
        display.close()
    if not isinstance(ended, signal.Signals):
        return ended
    goes_on = "; --resume goes on from the last checkpoint" if keeps_checkpoint else ""
    display.say(f"interrupted by {ended.name}: all processes were ended{goes_on}")
    return 128 + ended


async def _restarting(job: Job, restarts: int, display: Display) -> int:
    restart = 0
    while True:
        attempt = _Attempt(job, display)
        conclusion = await attempt.run()
        # A result that was shown already must not be shown twice.
        if conclusion.status != 1 or restart == restarts or display.has_output:
            # A refusal that rank 0 has printed has been shown.
            if conclusion.status and conclusion.message != attempt.watch.processes[SHOWN].last_line:
                display.say(conclusion.message)
            return conclusion.status
        restart += 1
        display.say(f"{conclusion.message}; restart {restart} of {restarts}, from the last checkpoint")
        resume = () if "--resume" in job.command else ("--resume",)
        port = job.port if job.keeps_port else free_port(ADDRESS)
        job = replace(job, command=(*job.command, *resume), port=port)


@final
class _Attempt:
    """A job that runs once; it takes the news of its processes."""

    def __init__(self, job: Job, display: Display) -> None:
        self._loop, self._display, self._changed = asyncio.get_running_loop(), display, asyncio.Event()
        self._processes = processes_of(job)
        names = [process.name for process in self._processes]
        self.watch = Watch(names, os.uname().nodename, job.timeout, self._loop.time())
        self._conclusion: Conclusion | None = None
        self._stacks: defaultdict[str, bytes] = defaultdict(bytes)

    async def run(self) -> Conclusion:
        """Run the job, and end all of it; return the conclusion, which is not shown yet."""
        terminal = {"COLUMNS": str(shutil.get_terminal_size().columns)}
        if sys.stdout.isatty():
            terminal["FORCE_COLOR"] = "1"
        watch, now = self.watch, self._loop.time
        async with running(self._processes, terminal, self) as processes:
            while (conclusion := watch.decide(now())) is None:
                # If this process was kept from running, news come before the clock.
                await self._within(max(MIN_LOOK, watch.next_look() - now()))
            self._conclusion = conclusion
            if conclusion.hang:
                await self._collect_stacks(processes)
                conclusion = watch.after_stacks(conclusion, self._stacks, now())
        if conclusion.hang:
            # The end of the output is read first, so the culprits come last.
            for rank in sorted(watch.running_ranks, key=lambda rank: rank in conclusion.culprits):
                written = self._stacks[rank].decode(errors="replace")
                stack = written or "it gave no stacks: it was stopped, or had not begun to run"
                self._display.show_words(f"stacks of {watch.processes[rank].label}", stack, STACK_LINES)
        elif conclusion.status == 1:
            for name in conclusion.culprits:
                process = watch.processes[name]
                # Rank 0's were shown already.
                if name != SHOWN and process.last_line:
                    self._display.show_words(f"{process.label} said last", process.errors.decode(errors="replace"))
        return conclusion

    def printed(self, name: str, data: bytes, error: bool) -> None:
        if self._conclusion is not None:
            if error:
                self._stacks[name] += data
        else:
            if error:
                self.watch.print(name, data)
            if name == SHOWN:
                self._display.printed(data, error)
        self._changed.set()

    def reported(self, name: str, report: Report) -> None:
        if self._conclusion is None:
            self.watch.report(name, report, self._loop.time())
            if name == SHOWN:
                self._display.reported(report)
            self._changed.set()

    def ended(self, name: str, status: int) -> None:
        if self._conclusion is None:
            self.watch.end(name, status, self._loop.time())
            self._changed.set()

    async def _within(self, seconds: float) -> bool:
        """Wait until something has changed; return whether it has."""
        with contextlib.suppress(TimeoutError):
            # wait_for() may lose an interruption that comes together with news (Python 3.11).
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        happened = self._changed.is_set()
        self._changed.clear()
        return happened

    async def _collect_stacks(self, processes: Sequence[Running]) -> None:
        """Ask the ranks for their stacks and wait until all have written them, or STACKS_SECONDS."""
        for process in processes:
            process.ask_for_stack()
        end = self._loop.time() + STACKS_SECONDS
        while (left := end - self._loop.time()) > 0:
            happened = await self._within(min(left, QUIET_SECONDS))
            if not happened and all(rank in self._stacks for rank in self.watch.running_ranks):
                return
