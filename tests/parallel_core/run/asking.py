"""A worker in this process: it is asked by lines, and its answers are lines."""

from collections.abc import Iterator

import pytest

from parallel_core.measurement.starter import Turns
from parallel_core.run import worker


class Asking(Turns):
    """A starter that asks by some lines, and gives no turns."""

    def __init__(self, lines: list[str]) -> None:
        self._lines: Iterator[str] = iter(lines)

    def next_asked(self) -> str:
        """Return the next line."""
        return next(self._lines)

    def end_experiment(self) -> None:
        """Give no further turn."""


def ended_with(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a worker answer some lines here, and return its status."""
    monkeypatch.setattr(worker, "end_soon_on_interrupt", lambda: None)
    monkeypatch.setattr(worker, "Starter", lambda: Asking(lines))
    monkeypatch.setattr("sys.argv", ["worker"])
    try:
        worker.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
