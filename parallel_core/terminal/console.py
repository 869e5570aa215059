"""Where a person's output goes, its four colours, which are the terminal's own, and the one kind of progress."""

from humanize import naturaldelta
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text
from rich.theme import Theme

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


def terminal_console(stderr: bool = False) -> Console:
    """Return a console on standard output, or on standard error."""
    return Console(stderr=stderr, highlight=False, theme=PROGRESS)


class _Left(ProgressColumn):
    """What the task's field `left` says in seconds, or what follows from its speed."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left", task.time_remaining)
        return Text("" if left is None else f"about {naturaldelta(left)} left")


def progress_line(console: Console, *counted: ProgressColumn, by_itself: bool = False, shown: bool = True) -> Progress:
    """Return a line with a bar, drawn `by_itself`, ten times a second, or only on request."""
    columns = (TextColumn("{task.description}"), BarColumn(20), *counted, _Left())
    return Progress(*columns, console=console, auto_refresh=by_itself, transient=True, disable=not shown)
