"""Run a program with the recorder in each of its Python processes: its streams, status and signals
pass through.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import backends
from parallel_core.system.errors import RequestError
from parallel_core.system.signals import is_pending
from parallel_core.traces.profile.bootstrap.sitecustomize import SETTINGS
from parallel_core.traces.profile.recorder import ENDED

HERE = Path(__file__).parent
HOOKS = {
    name: str(Path(backends.__file__).parent / name / "program_hooks.py")
    for name in ("jax", "mxnet", "torch")
}
"""The modules that hook each framework. They are loaded by their paths."""
PASSED_ON = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
UNTIL_ALL_HAVE_IT = 0.02
"""Seconds after which a signal to a group has reached all of its processes."""


@dataclass(frozen=True)
class Recorded:
    """How far one process of the program came. Without a trace, `hindrance` may say why, as a
    clause.
    """

    pid: int
    framework: str
    rank: int | None = None
    marker: str = ""
    """What marked its steps: profiled_step, profiler or optimizer."""
    steps_seen: int = 0
    steps_recorded: int = 0
    trace: Path | None = None
    hindrance: str = ""
    failure: str = ""
    """Why the framework could not be hooked; empty if it was."""
    unprofiled_step_seconds: float | None = None
    """How long a step took before the recording, on average; None if only one was seen."""
    core_wait_share: float | None = None
    """The share of the recorded time in which the process's busiest thread waited for a core; None
    if the system does not count it.
    """


def interpreted(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that can be started: a script, or `-m MODULE`, by this Python; torchrun may
    lie beside it.
    """
    first, *others = command
    if first.endswith(".py") or first in ("-m", "-c"):
        return (sys.executable, *command)
    beside = (
        shutil.which(first, path=str(Path(sys.executable).parent)) if os.sep not in first else None
    )
    return (shutil.which(first) or beside or first, *others)


def run_program(command: Sequence[str], folder: Path, warm_up: int, steps: int) -> int:
    """Run a command, whose processes write to `folder`; return its status, negative for the signal
    that killed it.

    Call from the main thread. Raises RequestError, in one line, if it cannot be started.
    """
    settings = {
        "folder": str(folder.resolve()),
        "warm_up": warm_up,
        "steps": steps,
        "recorder": str(HERE / "recorder.py"),
        "hooks": HOOKS,
    }
    path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        SETTINGS: json.dumps(settings),
        "PYTHONPATH": os.pathsep.join([str(HERE / "bootstrap"), *([path] if path else [])]),
        # PyTorch's tracing library would report its stages on the program's standard error.
        "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"),
    }
    # An interrupt ends the program, and this process when it has reported what was recorded.
    signal.set_wakeup_fd(-1)
    process: subprocess.Popen[bytes] | None = None
    witness = _start_witness()

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal witness
        del frame
        # A signal to our group, as a terminal's, has reached the program itself.
        if process is None:
            return
        if not _was_sent_to(witness, number):
            process.send_signal(number)
            return
        with witness:
            witness.kill()
        witness = _start_witness()

    # What nohup or a shell's background job ignores stays ignored, in the program, too.
    previous = {number: signal.getsignal(number) for number in PASSED_ON}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        try:
            process = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise RequestError(f"cannot run {command[0]}: {error.strerror or error}") from error
        return process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        with witness:
            witness.kill()


def _start_witness() -> "subprocess.Popen[bytes]":
    """Start a process of our group that takes no signal that is passed on: there they stay pending.

    It ends with this process, whose pipe it reads.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    try:
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _was_sent_to(witness: "subprocess.Popen[bytes]", number: int) -> bool:
    """Return whether a signal that came to us came to the witness, too, and so to our group."""
    time.sleep(UNTIL_ALL_HAVE_IT)
    return is_pending(number, witness.pid)


def recorded_in(folder: Path) -> tuple[Recorded, ...]:
    """Return what the program's processes wrote, by rank and number, without what cannot be
    read.
    """
    processes = []
    for path in folder.glob("*.report"):
        # A process that still runs, or a disk that is full, leaves half a report.
        with suppress(OSError, ValueError):
            report: dict[str, Any] = json.loads(path.read_text("utf-8"))
            trace = folder / report["trace"] if report.get("trace") else None
            processes.append(Recorded(**{**report, "trace": trace}))
    return tuple(sorted(processes, key=lambda one: (one.rank or 0, one.pid)))


def why_incomplete(processes: Sequence[Recorded], warm_up: int, steps: int) -> str:
    """Return, in a line, why fewer steps were recorded than asked for, and how many were seen;
    empty if all were.
    """
    if failures := [f"{one.framework}: {one.failure}" for one in processes if one.failure]:
        return f"the recorder could not hook {failures[0]}"
    if not processes:
        return (
            "nothing was recorded: no Python process of the program imported torch, jax or mxnet, "
            "or the recorder was kept out (by python -I, -E or -S, or an emptied environment as of "
            "env -i)"
        )
    furthest = max(processes, key=lambda one: (one.steps_recorded, one.steps_seen))
    seen, recorded = furthest.steps_seen, furthest.steps_recorded
    if recorded == steps and furthest.trace is not None:
        return ""
    if seen == 0:
        return (
            "no step was seen: no optimizer of torch, no trainer of mxnet and no "
            "StepTraceAnnotation of jax has ended one; put each step of the program "
            "under `with parallel_core.profiled_step():`"
        )
    if recorded:
        return (
            f"{_steps(recorded)} of {steps} recorded, then "
            f"{furthest.hindrance or 'the program was killed'}"
        )
    why = furthest.hindrance if furthest.hindrance != ENDED else ""
    why = why or f"the program ended, and {warm_up} to warm up and {steps} to record were asked for"
    return f"nothing was recorded in the {_steps(seen)} seen: {why}"


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def end_as(status: int) -> int:
    """Return an exit status as it is; end this process by the signal that ended the program, if one
    did.
    """
    if status >= 0:
        return status
    number = -status
    # The program has left a core dump, if any is wanted.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), number)
    return 128 + number
