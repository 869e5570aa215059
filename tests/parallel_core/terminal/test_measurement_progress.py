"""The line that shows how far a measurement is: on a terminal alone, from two seconds on, drawn when it is told."""

import io
import threading

import pytest
from rich.console import Console

from parallel_core.measurement.progress import tell
from parallel_core.terminal import measurement_progress as display


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, from_second: float) -> str:
    monkeypatch.setattr(display, "SHOWN_FROM", from_second)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, force_interactive=terminal, width=80)
    threads = threading.active_count()
    with display.measurement_progress(console, "overlap"):
        tell("run and copy together", 0.25)
        assert threading.active_count() == threads
    tell("after the end", 1.0)
    return stream.getvalue()


def test_what_is_measured_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True, from_second=0.0)
    assert "overlap: run and copy together" in text
    assert "after the end" not in text


def test_nothing_is_shown_elsewhere_or_of_short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, terminal=False, from_second=0.0) == ""
    assert shown(monkeypatch, terminal=True, from_second=60.0) == ""
