"""What the user sees of a measurement that takes a while: one line, drawn anew between timings and never during one."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console

from parallel_core.measurement.progress import listening
from parallel_core.terminal.console import progress_line

__all__ = ["SHOWN_FROM", "measurement_progress"]

SHOWN_FROM = 2.0
"""Seconds from which on the line is shown."""
REDRAWN_EVERY = 0.2


@contextmanager
def measurement_progress(console: Console, title: str) -> Iterator[None]:
    """Show within a `with` block what is measured, and how much of that is done; nothing if it is not a terminal."""
    if not console.is_interactive:
        yield
        return
    # Without a thread that draws: it would take time from what is measured.
    progress = progress_line(console)
    task = progress.add_task("", total=1.0)
    started = monotonic()
    drawn = started - REDRAWN_EVERY

    def draw(what: str, share: float) -> None:
        nonlocal drawn
        now = monotonic()
        if now - started < SHOWN_FROM or now - drawn < REDRAWN_EVERY:
            return
        drawn = now
        progress.update(task, description=f"{title}: {what}", completed=share)
        progress.start()
        progress.refresh()

    try:
        with listening(draw):
            yield
    finally:
        progress.stop()
