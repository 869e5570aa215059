"""Timelines made up from numbers: products on cpu:1, copies of their results on cpu:2, and the host
that launches.

Results of `overlap`, made up as well, to be held against them, and programs made up call by call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window
from backends.profiling.slices import coded
from backends.profiling.timeline import ROLES, HostCalls, HostRole
from parallel_core.compare.results import Cell
from parallel_core.measurement.result import Result
from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.cases import CaseFigures, timeline_figures
from tests.backends.profiling.events import ns
from tests.parallel_core.compare import made_up as comparisons

FIRST, SECOND = "cpu:1", "cpu:2"
JOINT = "run and copy together"
GPU = "gpu:0"


@dataclass
class Host:
    """A host that launches operations on queues and waits for them, in seconds: a model of an
    asynchronous engine.
    """

    now: float = 0.0
    launching: float = 20e-6
    linked: bool = True
    synchronous: bool = False
    spans: list[Span] = field(default_factory=list)
    free: dict[tuple[str, str], float] = field(default_factory=dict)

    def launch(
        self,
        name: str,
        kind: SpanKind,
        device: str,
        seconds: float,
        after: float = 0,
        queue: str = "compute",
    ) -> float:
        """Launch an operation that needs what is there at `after`; return when it ends."""
        launched = self.now
        start = max(launched + self.launching, self.free.get((device, queue), 0.0), after)
        end = start + seconds
        self.free[device, queue] = end
        self.now = end if self.synchronous else launched + self.launching
        call = "copy_to" if kind == "copy" else f"launch {name}"
        self.spans.append(Span(call, "host", HOST_DEVICE, "Python", ns(launched), ns(self.now)))
        link = ns(launched) if self.linked else None
        self.spans.append(Span(name, kind, device, queue, ns(start), ns(end), link))
        return end

    def wait(self, name: str = "waitall") -> None:
        """Wait until all is done."""
        start = self.now
        self.now = max([start, *self.free.values()]) + 5e-6
        self.spans.append(Span(name, "host", HOST_DEVICE, "Python", ns(start), ns(self.now)))


def overlap_timeline(
    *,
    products: int = 50,
    product: float = 4e-3,
    copy: float = 4e-3,
    stretch: float = 1.0,
    together: bool = True,
    linked: bool = True,
    synchronous: bool = False,
) -> Timeline:
    """Make the timeline of `overlap`: the products, the copies, and both.

    Where both run `together`, copies have a device of their own, and all operations take `stretch`
    × as long; else they queue behind the products. A synchronous host does everything itself, in
    its own time.
    """
    host = Host(linked=linked, synchronous=synchronous)
    queue = "calling thread" if synchronous else "compute"
    source, destination = (
        (("cpu", "cpu") if synchronous else (FIRST, SECOND)) if together else (FIRST, FIRST)
    )

    def multiply(factor: float = 1.0) -> float:
        return host.launch("matmul", "compute", source, product * factor, queue=queue)

    def copy_result(after: float = 0.0, factor: float = 1.0) -> float:
        return host.launch("copy", "copy", destination, copy * factor, after, queue)

    def both() -> None:
        made = multiply(stretch)
        for _ in range(products - 1):
            following = multiply(stretch)
            copy_result(made, stretch)
            made = following
        copy_result(made, stretch)

    works = {
        "run": lambda: [multiply() for _ in range(products)],
        "copy": lambda: [copy_result() for _ in range(products)],
        JOINT: both,
    }
    return _timeline(host, works)


def _timeline(host: Host, works: Mapping[str, Callable[[], object]]) -> Timeline:
    cases: list[Window] = []
    for name, work in works.items():
        start = host.now
        host.wait()
        work()
        host.wait()
        cases.append(Window(name, ns(start), ns(host.now)))
        host.now += 1e-3
    return Timeline("made up", sorted_by_start(host.spans), tuple(cases))


def parallel_timeline(stretch: float = 1.0) -> Timeline:
    """Make the timeline of `parallel`: products on each of two devices alone, and on both,
    `stretch` × as long.
    """
    host = Host()

    def multiply(factor: float, *devices: str) -> None:
        for device in (device for device in devices for _ in range(50)):
            host.launch("matmul", "compute", device, 4e-3 * factor)

    works = {f"on {device} alone": partial(multiply, 1.0, device) for device in (FIRST, SECOND)}
    return _timeline(host, {**works, "on all together": partial(multiply, stretch, FIRST, SECOND)})


def sorted_by_start(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Put spans in the order of their start, as a timeline holds them."""
    return tuple(sorted(spans, key=lambda span: span.start))


def queue_of(
    times: Sequence[tuple[float, float]],
    kind: SpanKind = "compute",
    device: str = FIRST,
    queue: str = "compute",
) -> tuple[Span, ...]:
    """Make the spans of one queue from their starts and ends in seconds."""
    return tuple(Span(kind, kind, device, queue, ns(start), ns(end)) for start, end in times)


def made_case(*spans: Span) -> CaseSpans:
    """Make the one case of a timeline of some spans, in any order."""
    (case,) = cases_of(Timeline("made up", sorted_by_start(spans)))
    return case


def overlap_result(run: float, copy: float, both: float) -> Result:
    """Make a result of `overlap` from three times."""
    seconds = {"run": run, "copy": copy, JOINT: both}
    return comparisons.result(Cell("overlap", "mxnet", "async"), seconds)


@cache
def overlap_figures(**changes: float | bool) -> tuple[CaseFigures, ...]:
    """Return the figures of the cases of `overlap_timeline`, made with some changes."""
    return timeline_figures(overlap_timeline(**changes))  # type: ignore[arg-type]


def with_figures(case: CaseFigures, **figures: object) -> CaseFigures:
    """Return a case of which some figures are kept as if they had been computed."""
    changed = CaseFigures(case.spans)
    vars(changed).update(figures)
    return changed


@dataclass
class Program:
    """Calls and operations in nanoseconds, in any order."""

    calls: list[tuple[int, int, str, str, HostRole]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def call(
        self, start: int, end: int, name: str, role: HostRole = "call", thread: str = "Python"
    ) -> "Program":
        """Add a call of the host."""
        self.calls.append((start, end, name, thread, role))
        return self

    def run(
        self, start: int, end: int, name: str, launched: int | None = None, queue: str = "stream 7"
    ) -> "Program":
        """Add an operation."""
        self.spans.append(Span(name, "compute", GPU, queue, start, end, launched))
        return self

    @property
    def host_calls(self) -> HostCalls:
        """The calls as the reader gives them."""
        ordered = sorted(self.calls, key=lambda call: call[0])
        starts, ends, called, threads, roles = zip(*ordered, strict=True) if ordered else ((),) * 5
        (names, name_of), (queues, queue_of) = coded(called), coded(threads)
        times = np.array((starts, ends), np.int64)
        played = np.array([ROLES.index(role) for role in roles], np.int8)
        return HostCalls(names, queues, *times, name_of, queue_of, played)

    @property
    def case(self) -> CaseSpans:
        """The whole as one case."""
        return replace(made_case(*self.spans), host_calls=self.host_calls)

    @property
    def case_by_time(self) -> CaseSpans:
        """The same by a profiler that records the calls as spans only."""
        calls = (
            Span(name, "host", HOST_DEVICE, thread, start, end)
            for start, end, name, thread, _ in self.calls
        )
        return made_case(*self.spans, *calls)
