"""A thousand queues cost no more than as many spans on one, and figures are those of counting."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling import Span, Timeline
from parallel_core.trace_analysis.case_spans import CaseSpans, cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.host_waits import CLOCKS_DIFFER, linked_waits
from parallel_core.trace_analysis.interference import interference, time_beside
from parallel_core.trace_analysis.waited_for import linked_operations
from tests.parallel_core.trace_analysis.synthetic import Program, made_case, sorted_by_start

Columned = TypeVar("Columned")
EACH = 8
"""How many operations a queue has."""


class Counted(np.ndarray):
    """An array that counts the elements that NumPy goes through, also of what is made from it."""

    elements = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.elements += sum(np.size(one) for one in inputs)
        plain = {
            name: tuple(map(_plain, value)) if name == "out" else value
            for name, value in options.items()
        }
        return _counted(getattr(ufunc, method)(*map(_plain, inputs), **plain))

    def __getitem__(self, where: Any) -> Any:
        found = super().__getitem__(where)
        Counted.elements += np.size(where) + np.size(found)
        return found


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def _counted(value: Any) -> Any:
    return value.view(Counted) if isinstance(value, np.ndarray) else value


def with_counted_columns(made: Columned) -> Columned:
    columns = {field.name: getattr(made, field.name) for field in fields(made)}  # type: ignore[arg-type]
    counted = {
        name: _counted(value) for name, value in columns.items() if isinstance(value, np.ndarray)
    }
    return replace(made, **counted)  # type: ignore[type-var]


@contextmanager
def counting() -> Iterator[list[int]]:
    Counted.elements = 0
    found: list[int] = []
    yield found
    found.append(Counted.elements)


def on_devices(queues: int) -> Timeline:
    """Make operations on as many devices, launched by as many threads, which wait for them."""
    program = Program()
    for number in range(EACH * queues):
        queue = number % queues
        start, thread = 100 * number, f"Python {queue}"
        program.call(start, start + 60, "mm", "operator", thread)
        program.call(start + 10, start + 20, "launch", "call", thread)
        program.spans.append(
            Span(
                f"kernel {number % 3}",
                "compute",
                f"gpu:{queue}",
                "stream 7",
                start + 30,
                start + 500,
                start + 10,
            )
        )
        program.call(start + 70, start + 520, "synchronize", "wait for a queue", thread)
    return Timeline("made up", sorted_by_start(program.spans), host_calls=program.host_calls)


def on_threads(queues: int) -> Timeline:
    """Make operators on as many threads, and no device."""
    spans = [
        Span(
            f"add {number % 3}",
            "compute",
            "cpu",
            f"thread {number % queues}",
            100 * number,
            100 * number + 350,
        )
        for number in range(EACH * queues)
    ]
    return Timeline("made up", spans)


def exchanging(queues: int) -> Timeline:
    """Make operations on as many devices, every other one of which exchanges."""
    spans = [
        Span(
            f"kernel {number % 3}",
            "exchange" if number // queues % 2 else "compute",
            f"gpu:{number % queues}",
            "stream 7",
            100 * number,
            100 * number + 60,
        )
        for number in range(EACH * queues)
    ]
    return Timeline("made up", spans)


def elements(timeline: Timeline) -> int:
    calls = timeline.host_calls and with_counted_columns(timeline.host_calls)
    (case,) = cases_of(
        replace(timeline, spans=with_counted_columns(timeline.columns), host_calls=calls)
    )
    with counting() as found:
        figures_of(case)
        interference((case,))
    return found[0]


@pytest.mark.parametrize("make", [on_devices, on_threads, exchanging])
def test_the_elements_that_are_gone_through_grow_with_the_spans_and_not_with_spans_times_queues(
    make: Callable[[int], Timeline],
) -> None:
    few, many = (elements(make(queues)) for queues in (50, 400))
    assert few > 0
    assert many < 2 * 8 * few


def spans_on(queues: int) -> st.SearchStrategy[list[Span]]:
    places = st.tuples(
        st.integers(0, queues - 1), st.sampled_from(("compute", "copy")), *(st.integers(0, 30),) * 2
    )
    return st.lists(places, min_size=1, max_size=12).map(
        lambda drawn: [
            Span(kind, kind, "gpu:0", f"stream {queue}", start, start + length)
            for queue, kind, start, length in drawn
        ]
    )


def ran_elsewhere(case: CaseSpans, kind: str, asked: Span) -> int:
    """Count the nanoseconds of a span in which another queue ran something of a kind."""
    others = [span for span in case.spans if span.queue != asked.queue and span.kind == kind]
    return sum(
        any(one.start <= time < one.end for one in others) for time in range(asked.start, asked.end)
    )


@given(spans_on(4))
def test_the_time_beside_other_queues_is_what_counting_gives(spans: list[Span]) -> None:
    case = made_case(*spans)
    everything = np.arange(len(case.spans))
    for kind in ("compute", "copy"):
        found = time_beside(case, np.flatnonzero(case.of_kind(kind)), everything)
        assert found.tolist() == [ran_elsewhere(case, kind, span) for span in case.spans]


@st.composite
def waiting(draw: st.DrawFn) -> Program:
    """Draw operations of several queues, and waits of another thread for all of them."""
    program = Program()
    number = st.integers(0, 5)
    for place in range(draw(st.integers(1, 8))):
        launched = 10 * place
        program.call(launched, launched + 5, "launch", "call")
        start = launched + draw(number)
        program.run(start, start + 1 + 7 * draw(number), "work", launched, f"stream {draw(number)}")
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, 90))
        program.call(
            begin, begin + draw(st.integers(1, 40)), "synchronize", "wait for a device", "waiting"
        )
    return program


def waited_for(program: Program, begin: int, end: int) -> int | None:
    """Return when the operation ended that a wait of the host's was for, looking at every queue."""
    ends = []
    for queue in {span.queue for span in program.spans}:
        own = [
            span for span in program.spans if span.queue == queue and (span.launched or 0) <= begin
        ]
        last = max(own, key=lambda span: span.end, default=None)
        if last and begin < last.end <= end + CLOCKS_DIFFER and last.start < end:
            ends.append(last.end)
    return max(ends, default=None)


@given(waiting())
def test_a_wait_is_for_what_ends_last_of_all_queues(program: Program) -> None:
    case, calls = program.case, program.host_calls
    operations = linked_operations(case, calls)
    waits = linked_waits(calls, operations)
    found = {
        (int(calls.starts[call]), int(calls.ends[call])): int(operations.ends[operation])
        for call, operation in zip(waits.calls.tolist(), waits.operations.tolist(), strict=True)
    }
    for begin, end, _, thread, _ in program.calls:
        if thread == "waiting":
            assert found.get((begin, end)) == waited_for(program, begin, end)
