"""A trace of PyTorch's profiler, event by event; times are in microseconds."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.ranks.reading import RankTrace, read_ranks

MAIN, GLOO = 1, 2


class MadeUpTrace:
    """Events of one process."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.calls = 0

    def add(
        self, category: str, name: str, start: float, length: float, thread: int = MAIN, **args: Any
    ) -> None:
        """Add an event."""
        where = {"pid": 1, "tid": thread, "ts": start, "dur": length, "args": args}
        self.events.append({"ph": "X", "cat": category, "name": name, **where})

    def step(self, number: int, start: float, length: float) -> None:
        """Mark a step."""
        self.add("user_annotation", f"ProfilerStep#{number}", start, length)

    def steps(self, count: int, length: int = 20_000) -> Iterator[int]:
        """Mark steps that follow each other after a millisecond; yields when each begins."""
        for number in range(count):
            start = length * number
            self.step(number, start, length - 1000)
            yield start

    def operator(self, name: str, start: float, length: float) -> None:
        """Add an operator on the program's thread."""
        self.add("cpu_op", name, start, length)

    def call(self, name: str, start: float, length: float = 5, category: str = "cuda") -> int:
        """Add a call of the runtime; returns its number."""
        self.calls += 1
        self.add(f"{category}_runtime", name, start, length, correlation=self.calls)
        return self.calls

    def kernel(
        self,
        name: str,
        start: float,
        length: float,
        number: int | None = None,
        category: str = "kernel",
        stream: int = 7,
    ) -> None:
        """Add an operation on a stream, launched by the call of a number, or by one of its own."""
        correlation = self.call("cudaLaunchKernel", start - 10) if number is None else number
        args = {"device": 0, "stream": stream, "correlation": correlation}
        self.add(category, name, start, length, thread=stream, **args)

    def all_reduce(self, start: float, length: float, begin: float | None = None) -> None:
        """Launch an exchange over gloo, which begins 50 us later on gloo's thread, or when said."""
        self.operator("c10d::allreduce_", start, 50)
        begin = start + 50 if begin is None else begin
        self.add("user_annotation", "gloo:all_reduce", begin, length, GLOO)

    def write(self, path: Path) -> Path:
        """Write it as a file; returns its path."""
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path

    def read(self, folder: Path) -> RankTrace:
        """Return what is read of it."""
        path = self.write(folder / "trace.json")
        (rank,) = read_ranks([path], keep_spans=True).values()
        return rank

    def figures(self, folder: Path) -> CaseFigures:
        """Return the figures of all of it."""
        (figures,) = self.read(folder).figures
        return figures
