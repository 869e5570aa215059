"""Hooks into a PyTorch program of the user's own: where its steps end, and PyTorch's profiler
around some of them.

This is loaded by its path into the program's process, and imports only Python's own library; the
program's PyTorch is an argument. A step ends with the program's own `torch.profiler.profile.step`,
or with the step of its first optimizer.
"""

import os
import sys
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


PROFILER_S_WARNINGS = r"(?s).*\(Triggered internally at \S*torch/csrc/(autograd/)?profiler"


def silence_the_profiler() -> None:
    """Keep warnings of the profiler's from the program, for which warnings may be errors.

    PyTorch warns if its profiler stops inside a recorded operator, as it must where an optimizer
    steps in the backward pass; the program gets that warning when the backward pass returns.
    """
    # Again each time: the program may have put its own filters before it.
    warnings.filterwarnings("ignore", PROFILER_S_WARNINGS)


@contextmanager
def starting_a_profiler(torch: Any) -> Iterator[None]:
    """Within a `with` block, let PyTorch's profiler import no compiler, which takes seconds, nor
    warn of cycles.
    """
    lazy: set[str] = getattr(torch, "_lazy_modules", set())
    skipped = lazy & {"_inductor"} if "torch._inductor" not in sys.modules else set()
    lazy -= skipped
    try:
        with warnings.catch_warnings():
            # PyTorch 2.11 warns of later cycles before the only one.
            warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
            yield
    finally:
        lazy |= skipped


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
        """Return why it cannot record now."""
        return "the program runs the profiler itself" if self.programs_own else ""

    def is_capturing(self) -> bool:
        """Return whether the program captures a graph: its operators are not run, and a wait, or
        the end of a recording, would spoil it.
        """
        cuda = self.torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def settle(self) -> None:
        """Wait for the GPU, if the program uses one: a CPU's operators are done."""
        if self.torch.cuda.is_initialized() and not self.is_capturing():
            self.torch.cuda.synchronize()

    def start(self, activities: Iterable[Any] | None = None) -> None:
        """Begin to record some of PyTorch's `ProfilerActivity`; None: all that there are."""
        # Its tracing library, Kineto, would report its stages on standard error.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        silence_the_profiler()
        self.starting = True
        try:
            own = all_threads(self.torch)
            self.running = self.torch.profiler.profile(
                activities=activities, experimental_config=own
            )
            with starting_a_profiler(self.torch):
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
        context: AbstractContextManager[object] = self.torch.profiler.record_function(
            f"ProfilerStep#{number}"
        )
        return context

    def rank(self) -> int | None:
        """Return the rank in the default process group, or the one that a launcher gave."""
        distributed = self.torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
        given = os.environ.get("RANK", "")
        return int(given) if given.isdigit() else None


def all_threads(torch: Any) -> Any:
    """Return the setting with which PyTorch's profiler records all threads; None if this PyTorch
    has none.
    """
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


def mark_optimizers(torch: Any, recorder: Any, profiler: TorchProfiler) -> None:
    """Let each step of the program's first optimizer be a mark, but not while a graph is captured,
    in which nothing runs.
    """
    # Not register_optimizer_step_post_hook: that hook runs within the profiler's span of the step,
    # and cannot end it.
    under_profiler = torch.optim.Optimizer.profile_hook_step
    nested = threading.local()
    first: Any = None

    def profile_hook_step(step: Any) -> Any:
        stepping = under_profiler(step)

        @wraps(stepping)
        def step_and_mark(*args: Any, **named: Any) -> Any:
            nonlocal first
            nested.depth = getattr(nested, "depth", 0) + 1
            try:
                returned = stepping(*args, **named)
            finally:
                nested.depth -= 1
            # An optimizer may call another's step, and a program may have several.
            if nested.depth == 0 and not profiler.is_capturing():
                if first is None or first() is None:
                    first = weakref.ref(args[0])
                if first() is args[0]:
                    recorder.mark("optimizer", "torch")
            return returned

        return step_and_mark

    torch.optim.Optimizer.profile_hook_step = staticmethod(profile_hook_step)


def _mark_profilers(torch: Any, recorder: Any, profiler: TorchProfiler) -> None:
    own_step = torch.profiler.profile.step

    @wraps(own_step)
    def step(self: Any) -> None:
        # The steps that are recorded have their names from the recorder.
        names_steps, self.record_steps = (
            self.record_steps,
            self.record_steps and profiler.running is None,
        )
        try:
            own_step(self)
        finally:
            self.record_steps = names_steps
        recorder.mark("profiler", "torch")

    torch.profiler.profile.step = step

    def before_start(own: Any) -> None:
        if not profiler.starting:
            recorder.give_way()
            profiler.programs_own.add(id(own))

    def after_stop(own: Any) -> None:
        profiler.programs_own.discard(id(own))

    for kind, start, stop in (
        (torch.profiler.profile, "prepare_trace", "stop_trace"),
        (torch.autograd.profiler.profile, "__enter__", "__exit__"),
    ):
        _surround(kind, start, before=before_start)
        _surround(kind, stop, after=after_stop)


def _surround(
    kind: Any, name: str, before: Callable[[Any], object] = id, after: Callable[[Any], object] = id
) -> None:
    """Let a method of a class be preceded and followed by a call each, with the object."""
    method = getattr(kind, name)

    @wraps(method)
    def surrounded(self: Any, *args: Any, **named: Any) -> Any:
        before(self)
        try:
            return method(self, *args, **named)
        finally:
            after(self)

    setattr(kind, name, surrounded)
