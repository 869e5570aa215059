"""Hooks into a PyTorch program of the user's own: where its steps end, and PyTorch's profiler
around some of them.

This is loaded by its path into the program's process, and imports only Python's own library; the
program's PyTorch is an argument. A step ends with the program's own `torch.profiler.profile.step`,
or with the step of its first optimizer.
"""

import os
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any


def hook(torch: Any, recorder: Any) -> None:
    """Let the recorder know of the program's steps, and of the profilers that the program starts
    itself.
    """
    profiler = TorchProfiler(torch)
    mark_optimizers(torch, recorder, profiler)
    _mark_profilers(torch, recorder, profiler)
    recorder.add(profiler)


MESSAGE_OF_THREADS = b"ERROR: External init callback must run in same thread"
PROFILER_S_WARNINGS = r"(?s).*\(Triggered internally at \S*torch/csrc/(autograd/)?profiler"


def silence_the_profiler() -> None:
    """Keep the profiler's warnings from the program, for which warnings may be errors.

    PyTorch warns if its profiler stops inside a recorded operator, as it must where an optimizer
    steps in the backward pass; the program gets that warning when the backward pass returns.
    """
    # Again each time: the program may have put its own filters before it.
    warnings.filterwarnings("ignore", PROFILER_S_WARNINGS)


@contextmanager
def starting_a_profiler(torch: Any) -> Iterator[None]:
    """Let PyTorch's profiler import no compiler, nor warn of cycles, within a `with` block.

    The import would take seconds.
    """
    lazy_modules: set[str] = getattr(torch, "_lazy_modules", set())
    skipped_modules: set[str] = set()
    if "torch._inductor" not in sys.modules:
        skipped_modules = lazy_modules & {"_inductor"}
    lazy_modules -= skipped_modules
    try:
        with warnings.catch_warnings():
            # PyTorch 2.11 warns of later cycles before the only one.
            warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
            yield
    finally:
        lazy_modules |= skipped_modules


@contextmanager
def without_the_message_of_threads() -> Iterator[None]:
    """Keep from standard error that Kineto was not started by the thread that imported it.

    What else is written there in the meantime follows at the end.
    """
    if threading.current_thread() is threading.main_thread():
        yield
        return
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
            written.seek(0)
            for line in written:
                if not line.startswith(MESSAGE_OF_THREADS):
                    os.write(2, line)


class TorchProfiler:
    """PyTorch's profiler over all threads; gloo's exchanges run on separate threads."""

    framework = "torch"

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.running: Any = None
        self.starting = False
        self.programs_own: set[int] = set()
        """Profilers that the program runs itself: a process has one at a time."""

    def unavailable(self) -> str:
        """Return why the profiler cannot record now; empty if it can."""
        return "the program runs the profiler itself" if self.programs_own else ""

    def is_capturing(self) -> bool:
        """Return whether the program captures a graph.

        Operators are not run then, and a wait, or the end of a recording, would spoil the graph.
        """
        cuda = self.torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def settle(self) -> None:
        """Wait for the GPU, if the program uses one: a CPU's operators are done."""
        if self.torch.cuda.is_initialized() and not self.is_capturing():
            self.torch.cuda.synchronize()

    def start(self, activities: Iterable[Any] | None = None) -> None:
        """Begin to record some of PyTorch's `ProfilerActivity`; None: all that there are."""
        # PyTorch's tracing library, Kineto, would report its stages on standard error.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        silence_the_profiler()
        self.starting = True
        try:
            self.running = self.torch.profiler.profile(
                activities=activities, experimental_config=all_threads(self.torch)
            )
            with starting_a_profiler(self.torch), without_the_message_of_threads():
                self.running.start()
        finally:
            self.starting = False

    def stop(self, path: Path | None) -> None:
        """Stop, and write a trace to `path`, if any."""
        silence_the_profiler()
        running, self.running = self.running, None
        running.stop()
        if path is not None:
            running.export_chrome_trace(str(path))

    def step(self, number: int) -> AbstractContextManager[object]:
        """Return the context whose time in the trace is a step."""
        return self.torch.profiler.record_function(f"ProfilerStep#{number}")

    def rank(self) -> int | None:
        """Return the rank in the default process group, or the one that a launcher gave."""
        distributed = self.torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
        rank = os.environ.get("RANK", "")
        return int(rank) if rank.isdigit() else None


def all_threads(torch: Any) -> Any:
    """Return the setting with which PyTorch's profiler records all threads.

    None if this PyTorch has no such setting.
    """
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


def mark_optimizers(torch: Any, recorder: Any, profiler: TorchProfiler) -> None:
    """Let each step of the program's first optimizer end a step of the program.

    A step while a graph is captured does not count, because nothing runs.
    """
    # Not register_optimizer_step_post_hook: that hook runs within the profiler's span of the step,
    # and cannot end it.
    hook_under_profiler = torch.optim.Optimizer.profile_hook_step
    calls = threading.local()
    first_optimizer: Any = None

    def profile_hook_step(step: Any) -> Any:
        """Return an optimizer's `step` that also ends a step of the program."""
        step_under_profiler = hook_under_profiler(step)

        @wraps(step_under_profiler)
        def step_and_mark(*args: Any, **named: Any) -> Any:
            nonlocal first_optimizer
            calls.depth = getattr(calls, "depth", 0) + 1
            try:
                returned = step_under_profiler(*args, **named)
            finally:
                calls.depth -= 1
            # An optimizer may call another optimizer's step, which ends no step.
            if calls.depth > 0 or profiler.is_capturing():
                return returned
            # A program may have several optimizers, of which the first one counts.
            optimizer = args[0]
            if first_optimizer is None or first_optimizer() is None:
                first_optimizer = weakref.ref(optimizer)
            if first_optimizer() is optimizer:
                recorder.mark("optimizer", "torch")
            return returned

        return step_and_mark

    torch.optim.Optimizer.profile_hook_step = staticmethod(profile_hook_step)


def _mark_profilers(torch: Any, recorder: Any, profiler: TorchProfiler) -> None:
    """Let the recorder know of the program's own profilers, and of their steps."""
    profiler_step = torch.profiler.profile.step

    @wraps(profiler_step)
    def step(self: Any) -> None:
        """Do the profiler's own step, and end a step of the program."""
        record_steps_before = self.record_steps
        if profiler.running is not None:
            # The recorder itself names the steps that it records.
            self.record_steps = False
        try:
            profiler_step(self)
        finally:
            self.record_steps = record_steps_before
        recorder.mark("profiler", "torch")

    torch.profiler.profile.step = step

    def before_start(programs_profiler: Any) -> None:
        """Give way to a profiler that the program starts."""
        if not profiler.starting:
            recorder.give_way()
            profiler.programs_own.add(id(programs_profiler))

    def after_stop(programs_profiler: Any) -> None:
        profiler.programs_own.discard(id(programs_profiler))

    for profiler_class, start, stop in (
        (torch.profiler.profile, "prepare_trace", "stop_trace"),
        (torch.autograd.profiler.profile, "__enter__", "__exit__"),
    ):
        _surround(profiler_class, start, before=before_start)
        _surround(profiler_class, stop, after=after_stop)


def _do_nothing(_: Any) -> None:
    """Do nothing, before or after a method."""


def _surround(
    kind: Any,
    name: str,
    before: Callable[[Any], object] = _do_nothing,
    after: Callable[[Any], object] = _do_nothing,
) -> None:
    """Let a method of a class call `before` and `after` around itself, with its object."""
    method = getattr(kind, name)

    @wraps(method)
    def surrounded(self: Any, *args: Any, **named: Any) -> Any:
        before(self)
        try:
            return method(self, *args, **named)
        finally:
            after(self)

    setattr(kind, name, surrounded)
