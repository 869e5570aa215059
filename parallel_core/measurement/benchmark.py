"""The book's context manager that times a block, with two times instead of one."""

from time import perf_counter
from types import TracebackType
from typing import Self, final

from backends import Backend
from parallel_core.system.formatting import seconds


@final
class Benchmark:
    """Time a block and print when control returned, and when all that was launched was done.

    The book's context manager of this name reports only one of the two, depending on what the block waits for.

    >>> with Benchmark("products", backend):
    ...     backend.launch(backend.ops.matmul, x, x)
    products: control returned after 21.3 µs, done after 19.8 ms
    """

    def __init__(self, label: str, backend: Backend) -> None:
        self.label = label
        self.backend = backend
        self.dispatch_seconds = float("nan")
        self.seconds = float("nan")

    def __enter__(self) -> Self:
        self.backend.waitall()
        self._start = perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.dispatch_seconds = perf_counter() - self._start
        if error is None:
            self.backend.waitall()
            self.seconds = perf_counter() - self._start
            print(self)

    def __str__(self) -> str:
        dispatch, done = seconds(self.dispatch_seconds), seconds(self.seconds)
        return f"{self.label}: control returned after {dispatch}, done after {done}"
