"""Print to a string instead of a terminal."""

import unicodedata
from collections.abc import Callable
from io import StringIO
from typing import Any

from parallel_core.terminal.console import terminal_console


def printed(show: Callable[..., None], *arguments: Any, width: int = 100, **options: Any) -> str:
    """Call a function that prints to its `console`, and return what it printed."""
    stream = StringIO()
    console = terminal_console(file=stream, width=width)
    show(*arguments, console=console, **options)
    return stream.getvalue()


def in_words(text: str) -> str:
    """Return a text on a single line, its words apart by a single space."""
    return " ".join(text.split())


def controls(text: str) -> set[str]:
    """Return the control characters of a text, other than the ends of its lines."""
    line_end = "\n"
    return {character for character in text if unicodedata.category(character) == "Cc"} - {line_end}
