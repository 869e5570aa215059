"""Print to a string instead of a terminal."""

from collections.abc import Callable
from io import StringIO
from typing import Any

from rich.console import Console


def printed(show: Callable[..., None], *arguments: Any, width: int = 100, **named: Any) -> str:
    """Call a function that prints to its `console`, and return what it printed."""
    stream = StringIO()
    show(*arguments, console=Console(file=stream, width=width, highlight=False), **named)
    return stream.getvalue()


def in_words(text: str) -> str:
    return " ".join(text.split())
