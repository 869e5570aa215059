"""Witnesses of the order in which a repetition's calls and operations began and ended.

Mostly the framework's own profiler is the witness. A backend without a profiler can put clocks
around its operations instead, if they run on threads of this process. An operation must be done
when its function returns, or the clocks would miss its end.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import NamedTuple, Protocol, runtime_checkable

from backends import Backend
from backends.errors import BackendError
from backends.profiling import (
    Span,
    SpanKind,
    Timeline,
    Window,
    check_profiler,
    read_trace,
    run_profiler,
)
from backends.profiling import timeline_from as timeline_of_trace
from backends.profiling.marks import Mark, marking_verbs, parse_case, parse_task, parse_verb

Repeat = Callable[[Mark], None]
"""A function that repeats cases, each repetition under a mark."""


@runtime_checkable
class MarkingOperations(Protocol):
    """A backend that can put a mark around each operation, on the thread that runs it."""

    def marking_operations(self, mark: Mark) -> AbstractContextManager[None]:
        """Run each operation under a mark until this context ends.

        The text of the mark is the one that `task_text` returned when the operation was launched.
        """


class Witness(NamedTuple):
    """A witness: its name, and a function that returns the timeline of repetitions."""

    name: str
    watch: Callable[[Repeat], Timeline]
    ends_are_exact: bool
    """Whether the end of an operation is recorded before the engine knows that it is done."""


def witness_for(backend: Backend) -> Witness | None:
    """Return the witness of the order on a backend; None if nothing can see it."""
    if isinstance(backend, MarkingOperations):
        return Witness("the operations' own clocks", partial(watch_by_clocks, backend), True)
    try:
        check_profiler(backend)
    except BackendError:
        return None
    return Witness(f"{backend.name}'s profiler", partial(watch_by_profiler, backend), False)


def watch_by_profiler(backend: Backend, repeat: Repeat) -> Timeline:
    """Return the timeline that the framework's profiler records of repetitions.

    Raises BackendError, OSError or ValueError if it fails or leaves no trace that can be read.
    """
    with TemporaryDirectory(prefix="parallel-core-") as folder:
        path = Path(folder) / "trace.json"
        with run_profiler(backend, path) as mark:
            repeat(mark)
        return timeline_of_trace(read_trace(path))


def watch_by_clocks(backend: MarkingOperations, repeat: Repeat) -> Timeline:
    """Return the timeline that clocks around calls and operations record of repetitions."""
    marks: list[Window] = []

    @contextmanager
    def mark(text: str) -> Iterator[None]:
        start = perf_counter_ns()
        try:
            yield
        finally:
            marks.append(Window(text, start, perf_counter_ns()))

    with marking_verbs(backend, mark, _no_device), backend.marking_operations(mark):
        repeat(mark)
    return _timeline_of(marks)


def _no_device(*_: object, **__: object) -> None:
    """Return None for the device of a call: no count needs it."""


def _timeline_of(marks: list[Window]) -> Timeline:
    """Return the timeline of the cases, calls and operations that marks stand for.

    Operations whose call is not marked are left out.
    """
    cases: list[Window] = []
    calls: dict[int, Span] = {}
    operations: list[tuple[int, Span]] = []
    for text, start, end in sorted(marks, key=lambda window: window.start):
        if case := parse_case(text):
            cases.append(Window(case, start, end))
        elif call := parse_verb(text):
            calls[call.number] = Span(call.name, "host", "host", "Python", start, end)
        elif task := parse_task(text):
            kind: SpanKind = "copy" if task.queue == "copy" else "compute"
            span = Span(task.name, kind, task.device, task.queue, start, end)
            operations.append((task.number, span))
    spans = list(calls.values())
    for number, span in operations:
        if number in calls:
            spans.append(span._replace(launched=calls[number].start))
    spans.sort(key=lambda span: span.start)
    return Timeline("clocks", spans, tuple(cases))
