"""The one kind of progress: what is done at the moment, a bar, what is counted, and about how long the rest takes."""

from humanize import naturaldelta
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

__all__ = ["progress_line"]


class _Left(ProgressColumn):
    """What the task's field `left` says in seconds, or what follows from its speed."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left", task.time_remaining)
        return Text("" if left is None else f"about {naturaldelta(left)} left")


def progress_line(console: Console, *counted: ProgressColumn, by_itself: bool = False, shown: bool = True) -> Progress:
    """Return a line that is drawn `by_itself`, ten times a second, or only when it is told to."""
    columns = (TextColumn("{task.description}"), BarColumn(20), *counted, _Left())
    return Progress(*columns, console=console, auto_refresh=by_itself, transient=True, disable=not shown)
