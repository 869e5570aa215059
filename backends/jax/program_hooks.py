"""Hooks into a JAX program of the user's own. Read it beside `backends/torch/program_hooks.py`.

This is loaded by its path into the program's process, and imports only Python's own library; the
program's JAX is an argument. A step ends with the program's `jax.profiler.StepTraceAnnotation`.
"""

import gzip
import sys
import tempfile
from contextlib import AbstractContextManager, suppress
from functools import wraps
from pathlib import Path
from typing import Any


def hook(jax: Any, recorder: Any) -> None:
    """Let the recorder know of the program's steps, and of its own use of JAX's profiler."""
    profiler = JAXProfiler(jax)
    _mark_annotations(jax, recorder)
    _leave_own_profiles(jax, recorder, profiler)
    recorder.add(profiler)
    # Libraries of other frameworks import JAX and do not use it. Where a step's framework is not
    # known, the recorder takes the last profiler, so this one comes first.
    recorder.profilers.sort(key=lambda other: other is not profiler)


class JAXProfiler:
    """JAX's profiler, of which a process runs one at a time."""

    framework = "jax"

    def __init__(self, jax: Any) -> None:
        self.jax = jax
        self.is_programs_own = self.is_calling = False
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def unavailable(self) -> str:
        """Return why the profiler cannot record now; empty if it can."""
        return "the program runs the profiler itself" if self.is_programs_own else ""

    def settle(self) -> None:
        """Wait for all arrays that the program holds."""
        # The program meets its own errors where it waits itself.
        with suppress(Exception):
            # A program that has not computed yet chooses its devices later.
            if self.jax._src.xla_bridge.backends_are_initialized():
                self.jax.block_until_ready(self.jax.live_arrays())

    def start(self) -> None:
        """Begin to record."""
        options = self.jax.profiler.ProfileOptions()
        # Calls of Python's functions would be most of the trace.
        options.python_tracer_level = 0
        self.folder = tempfile.TemporaryDirectory(prefix="parallel-core-")
        self.is_calling = True
        try:
            self.jax.profiler.start_trace(self.folder.name, profiler_options=options)
        finally:
            self.is_calling = False

    def stop(self, path: Path | None) -> None:
        """Stop, and write a trace to `path`, if any."""
        assert self.folder is not None
        self.is_calling = True
        try:
            with self.folder as folder:
                self.jax.profiler.stop_trace()
                if path is not None:
                    (written,) = Path(folder).rglob("*.trace.json.gz")
                    path.write_bytes(gzip.decompress(written.read_bytes()))
        finally:
            self.is_calling = False

    def step(self, number: int) -> AbstractContextManager[object]:
        """Return the context whose time in the trace is a step."""
        return self.jax.profiler.TraceAnnotation(f"ProfilerStep#{number}")

    def rank(self) -> int | None:
        """Return the number of this process, if the program has several."""
        # The state is private: another JAX may keep it elsewhere.
        with suppress(AttributeError):
            state = self.jax._src.distributed.global_state
            return None if state.client is None else int(state.process_id)
        return None


def _mark_annotations(jax: Any, recorder: Any) -> None:
    """Let the end of each StepTraceAnnotation end a step of the program."""
    annotation = jax.profiler.StepTraceAnnotation
    leave = annotation.__exit__

    def leave_and_mark(self: Any, *error: Any) -> Any:
        """Leave the annotation, and mark the end of a step."""
        returned = leave(self, *error)
        recorder.mark("profiler", "jax")
        return returned

    annotation.__exit__ = leave_and_mark


def _leave_own_profiles(jax: Any, recorder: Any, profiler: JAXProfiler) -> None:
    """Let the program run JAX's profiler, also while this records."""
    start_trace, stop_trace = jax.profiler.start_trace, jax.profiler.stop_trace

    @wraps(start_trace)
    def start_and_note(*args: Any, **named: Any) -> Any:
        """Start the profiler; a recording gives way if the program did it."""
        if not profiler.is_calling:
            recorder.give_way()
            profiler.is_programs_own = True
        return start_trace(*args, **named)

    @wraps(stop_trace)
    def stop_and_note(*args: Any, **named: Any) -> Any:
        """Stop the profiler, and note that the program runs it no more."""
        try:
            return stop_trace(*args, **named)
        finally:
            if not profiler.is_calling:
                profiler.is_programs_own = False

    # `jax.profiler.trace` calls the functions of the module where they are defined.
    modules: tuple[Any, ...] = (jax.profiler, sys.modules[start_trace.__module__])
    for module in modules:
        module.start_trace, module.stop_trace = start_and_note, stop_and_note
