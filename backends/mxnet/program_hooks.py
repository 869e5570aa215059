"""Hooks into an MXNet program of the user's own. Read it beside `backends/torch/program_hooks.py`.

This is loaded by its path into the program's process, and imports only Python's own library; the
program's MXNet is an argument. A step ends with a call of its first trainer's `step` or `update`,
or of its first module's `update`.
"""

import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any


def hook(mxnet: Any, recorder: Any) -> None:
    """Let the recorder know of the program's steps, and of its own use of MXNet's profiler."""
    profiler = MXNetProfiler(mxnet)
    _mark_updates(mxnet, recorder, profiler)
    _leave_own_profiles(mxnet, profiler)
    recorder.add(profiler)


class MXNetProfiler:
    """MXNet's profiler, which can be configured once in a process: by the program, or by this."""

    framework = "mxnet"

    def __init__(self, mxnet: Any) -> None:
        self.mxnet = mxnet
        self.is_programs_own = self.is_starting = False
        self.contexts: list[Any] = []
        """Where the program's parameters lie."""
        self.file: Path | None = None
        self.heading = b""
        """What MXNet writes only before the events of its first dump."""

    def unavailable(self) -> str:
        """Return why the profiler cannot record now; empty if it can."""
        if self.is_programs_own:
            return "the program runs the profiler itself"
        # Where no process is bound to cores, as on macOS, it has all of them.
        get_affinity = getattr(os, "sched_getaffinity", None)
        cores = len(get_affinity(0)) if get_affinity is not None else os.cpu_count() or 1
        last = last_row(cores, self.mxnet.context.num_gpus())
        for context in self.contexts:
            if context.device_type == "cpu" and context.device_id > last:
                return (
                    f"MXNet's profiler has rows up to cpu({last}), and would abort the program at "
                    f"{context}"
                )
        return ""

    def settle(self) -> None:
        """Wait for all that was queued; raises the error of a failed operator.

        Only the first wait raises such an error, so it must reach the program.
        """
        self.mxnet.nd.waitall()

    def start(self) -> None:
        """Begin to record."""
        if self.file is None:
            descriptor, name = tempfile.mkstemp(suffix=".json")
            os.close(descriptor)
            self.file = Path(name)
            self.is_starting = True
            self.mxnet.profiler.set_config(
                filename=name,
                profile_imperative=True,
                profile_symbolic=True,
                profile_api=False,
                profile_memory=False,
            )
            self.is_starting = False
        self.mxnet.profiler.set_state("run")

    def stop(self, path: Path | None) -> None:
        """Stop, and write a trace to `path`, if any."""
        assert self.file is not None
        self.mxnet.profiler.set_state("stop")
        self.mxnet.profiler.dump(True)
        dumped = self.file.read_bytes()
        self.file.unlink()
        if dumped.startswith(b"{"):
            self.heading = _heading_of(dumped)
        else:
            dumped = self.heading + dumped
        if path is not None:
            path.write_bytes(dumped)

    @contextmanager
    def mark(self, text: str) -> Iterator[None]:
        """Mark in the trace what the calling thread does within a `with` block.

        The engine may run the operators of the block later.
        """
        event = self.mxnet.profiler.Event(text)
        event.start()
        try:
            yield
        finally:
            event.stop()

    def step(self, number: int) -> AbstractContextManager[object]:
        """Return the context whose time in the trace is a step."""
        return self.mark(f"ProfilerStep#{number}")

    def rank(self) -> int | None:
        """Return the worker's rank that a launcher gave; None without a launcher."""
        rank = os.environ.get("DMLC_WORKER_ID", "")
        return int(rank) if rank.isdigit() else None


def _heading_of(dumped: bytes) -> bytes:
    """Return the part of a first dump before its events: the names of its rows."""
    first_event = dumped.find(b'"ph": "B"')
    if first_event >= 0:
        heading, _, _ = dumped[:first_event].rpartition(b"{")
    else:
        heading, _, _ = dumped.rpartition(b"]")
    return heading.rstrip().removesuffix(b",")


def last_row(cores: int, gpus: int) -> int:
    """Return the largest number of a CPU device for which the profiler has a row."""
    # The profiler has a row for each core, for each GPU, and two more. A CPU device's number is
    # that of its row, so without GPUs the two more serve CPU devices.
    return cores - 1 if gpus else cores + 1


def _mark_updates(mxnet: Any, recorder: Any, profiler: MXNetProfiler) -> None:
    """Let the recorder know of each update by the first trainer or module, which ends a step."""
    calls = threading.local()
    first_updater: Any = None

    def marking(update: Any) -> Any:
        """Return an `update` method that also marks the end of a step."""

        @wraps(update)
        def update_and_mark(self: Any, *args: Any, **named: Any) -> Any:
            nonlocal first_updater
            calls.depth = getattr(calls, "depth", 0) + 1
            try:
                returned = update(self, *args, **named)
            finally:
                calls.depth -= 1
            # A bucketing module calls another module's update, which ends no step.
            if calls.depth > 0:
                return returned
            # A program may have several trainers, of which the first one counts.
            if first_updater is None or first_updater() is None:
                first_updater = weakref.ref(self)
                profiler.contexts = list(getattr(self, "_contexts", ()))
            if first_updater() is self:
                recorder.mark("optimizer", "mxnet")
            return returned

        return update_and_mark

    trainer = mxnet.gluon.Trainer
    trainer.step, trainer.update = marking(trainer.step), marking(trainer.update)
    for module in (mxnet.mod.Module, mxnet.mod.BucketingModule):
        module.update = marking(module.update)


def _leave_own_profiles(mxnet: Any, profiler: MXNetProfiler) -> None:
    """Let the program use MXNet's profiler as if this had not used it before.

    The program may configure it, and its dumps are whole files.
    """
    set_config, dump = mxnet.profiler.set_config, mxnet.profiler.dump
    own_file = Path("profile.json")

    @wraps(set_config)
    def set_config_and_note(**settings: Any) -> None:
        """Configure the profiler, and note that the program did so."""
        nonlocal own_file
        if profiler.is_starting:
            return set_config(**settings)
        profiler.is_programs_own = True
        own_file = Path(settings.get("filename", own_file))
        try:
            set_config(**settings)
        except mxnet.MXNetError:
            # MXNet takes a second configuration, and complains.
            if profiler.file is None:
                raise
        return None

    @wraps(dump)
    def dump_whole(*args: Any, **named: Any) -> None:
        """Dump, and add the heading if this has recorded before."""
        dump(*args, **named)
        if profiler.is_programs_own and profiler.heading and own_file.exists():
            dumped = own_file.read_bytes()
            if dumped.startswith(b","):
                own_file.write_bytes(profiler.heading + dumped)

    mxnet.profiler.set_config, mxnet.profiler.dump = set_config_and_note, dump_whole
