"""A thousand queues cost no more than as many spans on one."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, SpanKind, Timeline
from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.evidence.interference import interference, time_beside
from tests.parallel_core.traces.synthetic import Program, made_case, sorted_by_start

Columned = TypeVar("Columned")
OPERATIONS_PER_QUEUE = 8


class Counted(np.ndarray):
    """An array that counts the elements that NumPy goes through, also of what is made from it."""

    elements = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.elements += sum(np.size(array) for array in inputs)
        # NumPy would call this method again for arrays of this class.
        plain_inputs = [_plain(array) for array in inputs]
        if "out" in options:
            options["out"] = tuple(_plain(array) for array in options["out"])
        result = getattr(ufunc, method)(*plain_inputs, **options)
        return _counted(result)

    def __getitem__(self, index: Any) -> Any:
        selected = super().__getitem__(index)
        Counted.elements += np.size(index) + np.size(selected)
        return selected


def _plain(value: Any) -> Any:
    """Return a counting array as a usual one, and anything else as it is."""
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def _counted(value: Any) -> Any:
    """Return an array as one that counts, and anything else as it is."""
    return value.view(Counted) if isinstance(value, np.ndarray) else value


def with_counted_columns(table: Columned) -> Columned:
    """Return a dataclass with its arrays as arrays that count."""
    counted_columns = {}
    for field in fields(table):  # type: ignore[arg-type]
        column = getattr(table, field.name)
        if isinstance(column, np.ndarray):
            counted_columns[field.name] = _counted(column)
    return replace(table, **counted_columns)  # type: ignore[type-var]


def on_devices(queues: int) -> Timeline:
    """Return operations on a number of devices, launched by as many threads, which wait for
    them.
    """
    program = Program()
    for number in range(OPERATIONS_PER_QUEUE * queues):
        queue = number % queues
        thread, gpu = f"Python {queue}", f"gpu:{queue}"
        start = 100 * number
        launch = start + 10
        kernel = f"kernel {number % 3}"
        program.call(start, start + 60, "mm", "operator", thread)
        program.call(launch, launch + 10, "launch", "call", thread)
        program.spans.append(
            Span(kernel, "compute", gpu, "stream 7", start + 30, start + 500, launch)
        )
        program.call(start + 70, start + 520, "synchronize", "wait", thread)
    return Timeline("made up", sorted_by_start(program.spans), host_calls=program.host_calls)


def on_threads(queues: int) -> Timeline:
    """Return operators on a number of threads, and no device."""
    spans = []
    for number in range(OPERATIONS_PER_QUEUE * queues):
        name, thread = f"add {number % 3}", f"thread {number % queues}"
        start = 100 * number
        spans.append(Span(name, "compute", "cpu", thread, start, start + 350))
    return Timeline("made up", spans)


def exchanging(queues: int) -> Timeline:
    """Return operations on a number of devices, every other one of which exchanges."""
    spans = []
    for number in range(OPERATIONS_PER_QUEUE * queues):
        name, gpu = f"kernel {number % 3}", f"gpu:{number % queues}"
        turn = number // queues
        kind: SpanKind = "compute" if turn % 2 == 0 else "exchange"
        start = 100 * number
        spans.append(Span(name, kind, gpu, "stream 7", start, start + 60))
    return Timeline("made up", spans)


def elements(timeline: Timeline) -> int:
    """Return how many elements of arrays a timeline's figures go through."""
    calls = timeline.host_calls
    if calls is not None:
        calls = with_counted_columns(calls)
    spans = with_counted_columns(timeline.columns)
    (case,) = cases_of(replace(timeline, spans=spans, host_calls=calls))

    Counted.elements = 0
    CaseFigures(case)
    interference((case,))
    return Counted.elements


@pytest.mark.parametrize("make", [on_devices, on_threads, exchanging])
def test_the_elements_that_are_gone_through_grow_with_the_spans_and_not_with_spans_times_queues(
    make: Callable[[int], Timeline],
) -> None:
    elements_of_few = elements(make(50))
    elements_of_many = elements(make(400))
    assert elements_of_few > 0
    # Eight times as many queues, and as many spans on each.
    assert elements_of_many < 2 * 8 * elements_of_few


@st.composite
def spans_on_queues(draw: st.DrawFn, queues: int) -> list[Span]:
    """Draw computations and copies of one device, which may overlap even in their queue."""
    spans = []
    kinds: st.SearchStrategy[SpanKind] = st.sampled_from(("compute", "copy"))
    for _ in range(draw(st.integers(1, 12))):
        queue = draw(st.integers(0, queues - 1))
        kind = draw(kinds)
        start, length = draw(st.integers(0, 30)), draw(st.integers(0, 30))
        spans.append(Span(kind, kind, "gpu:0", f"stream {queue}", start, start + length))
    return spans


def time_beside_by_counting(case: CaseSpans, kind: str, asked: Span) -> int:
    """Return in how many nanoseconds of a span another queue ran something of a kind."""
    neighbours = [span for span in case.spans if span.queue != asked.queue and span.kind == kind]
    beside: set[int] = set()
    for span in neighbours:
        beside.update(range(span.start, span.end))
    return len(beside & set(range(asked.start, asked.end)))


@given(spans_on_queues(4))
def test_the_time_beside_other_queues_is_what_counting_gives(spans: list[Span]) -> None:
    case = made_case(*spans)
    all_spans = np.arange(len(case.spans))
    for kind in ("compute", "copy"):
        neighbours = np.flatnonzero(case.of_kind(kind))
        times = time_beside(case, neighbours, all_spans)
        assert times.tolist() == [time_beside_by_counting(case, kind, span) for span in case.spans]
