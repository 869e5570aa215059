"""The console for output to people, its four colours, which are the terminal's own, and its line of
progress.
"""

from collections.abc import Iterable
from typing import Any

from humanize import naturaldelta
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from parallel_core.system.formatting import visible

GOOD = "green"
DOUBTFUL = "yellow"
BAD = "red"
ASIDE = "dim"
"""The style of text that may be skipped: parameters, sources of data, notes."""

PROGRESS = Theme(
    {
        "bar.back": ASIDE,
        "bar.complete": GOOD,
        "bar.finished": GOOD,
        "bar.pulse": GOOD,
        "progress.download": "none",
        "status.spinner": GOOD,
    }
)
"""The colours of progress: rich's own do not follow the terminal's."""


class _PlainConsole(Console):
    """A console that prints text without markup, and control characters as symbols."""

    def render_str(self, text: str, **settings: Any) -> Text:
        """Return a string as rich measures and prints it, for example in a table."""
        return super().render_str(visible(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments to print; rich's own control codes, which move the cursor, stay."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


def terminal_console(stderr: bool = False, **settings: Any) -> Console:
    """Return a console on standard output, or on standard error, with more settings of rich's."""
    return _PlainConsole(
        stderr=stderr, highlight=False, markup=False, emoji=False, theme=PROGRESS, **settings
    )


class _Left(ProgressColumn):
    """The column of the seconds that are left, by a task's field `left` or by its speed."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left", task.time_remaining)
        return Text("" if left is None else f"about {naturaldelta(left)} left")


def progress_line(
    console: Console, *counted: ProgressColumn, by_itself: bool = False, shown: bool = True
) -> Progress:
    """Return a line with a bar; `by_itself` it is drawn ten times a second, else on request."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), *counted, _Left())
    return Progress(
        *columns, console=console, auto_refresh=by_itself, transient=True, disable=not shown
    )
