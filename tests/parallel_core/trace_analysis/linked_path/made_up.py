"""Programs made up call by call: what the host did, and what it launched."""

from dataclasses import dataclass, field, replace

import numpy as np

from backends.profiling import Span
from backends.profiling.timeline import ROLES, HostCalls, HostRole, KnownWait, QueueWait
from parallel_core.trace_analysis.case_spans import CaseSpans
from tests.parallel_core.trace_analysis.synthetic import made_case

GPU = "gpu:0"


@dataclass
class Program:
    """Calls and operations in nanoseconds, in any order."""

    calls: list[tuple[int, int, str, str, HostRole]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    known: dict[str, KnownWait] = field(default_factory=dict)
    queue_waits: list[QueueWait] = field(default_factory=list)

    def call(self, start: int, end: int, name: str, role: HostRole = "call", thread: str = "Python") -> "Program":
        """Add a call of the host."""
        self.calls.append((start, end, name, thread, role))
        return self

    def run(self, start: int, end: int, name: str, launched: int | None = None, queue: str = "stream 7") -> "Program":
        """Add an operation."""
        self.spans.append(Span(name, "compute", GPU, queue, start, end, launched))
        return self

    @property
    def host_calls(self) -> HostCalls:
        """The calls as the reader gives them."""
        ordered = sorted(self.calls, key=lambda call: call[0])
        names = tuple(dict.fromkeys(call[2] for call in ordered))
        threads = tuple(dict.fromkeys(call[3] for call in ordered))
        return HostCalls(
            names,
            threads,
            np.array([call[0] for call in ordered], np.int64),
            np.array([call[1] for call in ordered], np.int64),
            np.array([names.index(call[2]) for call in ordered], np.int32),
            np.array([threads.index(call[3]) for call in ordered], np.int32),
            np.array([ROLES.index(call[4]) for call in ordered], np.int8),
            {place: self.known[call[2]] for place, call in enumerate(ordered) if call[2] in self.known},
            tuple(self.queue_waits),
        )

    @property
    def case(self) -> CaseSpans:
        """The whole as one case."""
        return replace(made_case(*self.spans), host_calls=self.host_calls)
