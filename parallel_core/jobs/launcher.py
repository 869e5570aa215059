"""Launch a job: start its processes, show what rank 0 shows, say in one line why it failed, leave nothing behind.

The user sees rank 0's progress and output, and of other ranks nothing unless they are the cause.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import BinaryIO

from rich.console import Console
from rich.text import Text

from backends.process_groups.addresses import free_port
from parallel_core.jobs.job import ADDRESS, Job, News, Printed, Progress, TrainedEpoch, Training, processes_of
from parallel_core.jobs.processes import running
from parallel_core.jobs.watch import Conclusion, Watch
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import visible
from parallel_core.system.signals import until_stopped
from parallel_core.terminal.console import terminal_console
from parallel_core.terminal.progress import TrainingProgress, training_progress

SHOWN = "rank 0"
"""The rank whose output the user sees."""
STACKS_SECONDS = 3.0
QUIET_SECONDS = 0.3
MIN_LOOK = 0.05
WORDS_LINES, STACK_LINES = 20, 200


class Display:
    """Rank 0's standard output goes to `output` as it is, all else to the console on standard error."""

    def __init__(self, console: Console, output: BinaryIO, errors: BinaryIO) -> None:
        self.has_output = False
        """Whether rank 0 has written to standard output."""
        self._console, self._output, self._errors = console, output, errors
        self._bar: TrainingProgress | None = None
        self._shown, self._line = ExitStack(), b""

    def show(self, news: News) -> None:
        """Show what rank 0 wrote, or reports of its training."""
        match news:
            case Printed(data, error=True) if self._bar is None:
                self._write(data)
            case Printed(data, error=True):
                # Only whole lines go above the bar.
                *lines, self._line = (self._line + data).split(b"\n")
                for line in lines:
                    self._console.print(Text.from_ansi(line.decode(errors="replace")), soft_wrap=True)
            case Printed(data):
                # The result follows the training, and a bar would be drawn over it.
                self.close()
                self.has_output = True
                try:
                    self._output.write(data)
                    self._output.flush()
                except BrokenPipeError:
                    # Nobody reads on (`launch … | head`): the job still ends in good order, and so does Python.
                    os.dup2(os.open(os.devnull, os.O_WRONLY), self._output.fileno())
            # Without a terminal a bar would leave an empty line behind.
            case Training(epochs=epochs, images=images) if self._console.is_terminal:
                self.close()
                self._bar = self._shown.enter_context(training_progress(self._console, epochs, images))
            case Progress(epoch=epoch, images=images) if self._bar and images:
                self._bar.on_batch(epoch, images)
            case TrainedEpoch(line=line):
                self._console.print(line, soft_wrap=True)

    def say(self, line: str) -> None:
        """Show one line about the job."""
        self.close()
        self._write(f"parallel-core: {visible(' '.join(line.split()))}\n".encode())

    def show_words(self, heading: str, words: str, max_lines: int) -> None:
        """Show the last lines that a process wrote, under a heading."""
        self.close()
        self._write("\n".join([f"── {heading} ──", *visible(words).rstrip().splitlines()[-max_lines:], ""]).encode())

    def close(self) -> None:
        """Remove the progress bar."""
        self._shown.close()
        self._write(self._line)
        self._bar, self._line = None, b""

    def _write(self, data: bytes) -> None:
        self._errors.write(data)
        self._errors.flush()


def launch_job(job: Job, restarts: int = 0) -> int:
    """Launch a job on this machine; return the exit status: 0, 1 for a failure, 2 for a bad request.

    Rank 0's standard output is passed on as it is. After a failure that is no refusal the job is started again with
    `--resume`, at most `restarts` times, unless rank 0 has printed something. SIGINT, SIGTERM and SIGHUP end it with
    128 and its number. Raises RequestError for `restarts` of a command without `--checkpoint`, and MeasurementError
    for a command that cannot be started.
    """
    keeps_checkpoint = any(word.partition("=")[0] == "--checkpoint" for word in job.command)
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
        conclusion, watch = await _run_once(job, display)
        # A result that was shown already must not be shown twice.
        if conclusion.status != 1 or restart == restarts or display.has_output:
            # A refusal that rank 0 has printed has been shown.
            if conclusion.status and conclusion.message != watch.processes[SHOWN].last_line:
                display.say(conclusion.message)
            return conclusion.status
        restart += 1
        display.say(f"{conclusion.message}; restart {restart} of {restarts}, from the last checkpoint")
        resume = () if "--resume" in job.command else ("--resume",)
        port = job.port if job.keeps_port else free_port(ADDRESS)
        job = replace(job, command=(*job.command, *resume), port=port)


async def _run_once(job: Job, display: Display) -> tuple[Conclusion, Watch]:
    """Run a job, and end all of it; return the conclusion, which is not shown yet, and what was observed."""
    processes, now, changed = processes_of(job), asyncio.get_running_loop().time, asyncio.Event()
    watch = Watch([process.name for process in processes], job.timeout, now())
    conclusion: Conclusion | None = None
    stacks: defaultdict[str, bytes] = defaultdict(bytes)

    def take(name: str, news: News) -> None:
        if conclusion is None:
            watch.take(name, news, now())
            if name == SHOWN:
                display.show(news)
        elif isinstance(news, Printed) and news.error:
            stacks[name] += news.data
        changed.set()

    async def news_within(seconds: float) -> bool:
        with suppress(TimeoutError):
            # wait_for() may lose an interruption that comes together with news (Python 3.11).
            async with asyncio.timeout(seconds):
                await changed.wait()
        happened = changed.is_set()
        changed.clear()
        return happened

    terminal = {"COLUMNS": str(shutil.get_terminal_size().columns)}
    if sys.stdout.isatty():
        terminal["FORCE_COLOR"] = "1"
    async with running(processes, terminal, take) as started:
        while (conclusion := watch.decide(now())) is None:
            # If this process was kept from running, news come before the clock.
            await news_within(max(MIN_LOOK, watch.next_look() - now()))
        if conclusion.hang:
            for one in started:
                one.ask_for_stack()
            end = now() + STACKS_SECONDS
            while (left := end - now()) > 0:
                if not await news_within(min(left, QUIET_SECONDS)) and stacks.keys() >= {*watch.running_ranks}:
                    break
            conclusion = watch.after_stacks(conclusion, stacks, now())
    blamed = conclusion.culprits
    if conclusion.hang:
        # The end of the output is read first, so the culprits come last.
        for rank in sorted(watch.running_ranks, key=blamed.__contains__):
            written = stacks[rank].decode(errors="replace")
            stack = written or "it gave no stacks: it was stopped, or had not begun to run"
            display.show_words(f"stacks of {rank}", stack, STACK_LINES)
    elif conclusion.status == 1:
        for name in blamed:
            # Rank 0's were shown already.
            if name != SHOWN and watch.processes[name].last_line:
                words = watch.processes[name].errors.decode(errors="replace")
                display.show_words(f"{name} said last", words, WORDS_LINES)
    return conclusion, watch
