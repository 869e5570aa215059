"""Where a person's output goes, its four colours, which are the terminal's own, and the one kind of
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
"""For what may be skipped: parameters, where data came from, notes."""

PROGRESS = Theme(
    {"bar.back": ASIDE, "bar.complete": GOOD, "bar.finished": GOOD, "bar.pulse": GOOD}
    | {"progress.download": "none", "status.spinner": GOOD}
)
"""Rich's own colours are fixed."""


class _PlainConsole(Console):
    """A console that prints any text as it stands: no markup counts, and control characters are
    shown.
    """

    def render_str(self, text: str, **settings: Any) -> Text:
        """Return a string as rich arranges it, for example in a table whose columns it measures."""
        return super().render_str(visible(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is printed; control codes are rich's own, which move the cursor."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def terminal_console(stderr: bool = False, **settings: Any) -> Console:
    """Return a console on standard output, or on standard error, with other settings of rich's."""
    return _PlainConsole(
        stderr=stderr, highlight=False, markup=False, emoji=False, theme=PROGRESS, **settings
    )


class _Left(ProgressColumn):
    """What the task's field `left` says in seconds, or what follows from its speed."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left", task.time_remaining)
        return Text("" if left is None else f"about {naturaldelta(left)} left")


def progress_line(
    console: Console, *counted: ProgressColumn, by_itself: bool = False, shown: bool = True
) -> Progress:
    """Return a line with a bar, drawn `by_itself`, ten times a second, or only on request."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), *counted, _Left())
    return Progress(
        *columns, console=console, auto_refresh=by_itself, transient=True, disable=not shown
    )
