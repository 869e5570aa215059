"""Where a person's output goes, and its four colours, each readable on a white terminal and on a black one.

The terminal's own green, yellow, red and dim depend on its theme: yellow is hard to see on white, dim text on either.
"""

from rich.console import Console
from rich.theme import Theme

__all__ = ["ASIDE", "BAD", "DOUBTFUL", "GOOD", "terminal_console"]

GOOD = "color(28)"
DOUBTFUL = "color(130)"
BAD = "color(160)"
ASIDE = "color(243)"
"""For what may be skipped: parameters, where data came from, notes."""

PROGRESS = Theme(
    {
        "bar.back": ASIDE,
        "bar.complete": GOOD,
        "bar.finished": GOOD,
        "bar.pulse": GOOD,
        "progress.download": "none",
        "progress.elapsed": "none",
        "progress.remaining": "none",
        "status.spinner": GOOD,
    }
)
"""Rich's own has cyan and yellow in it."""


def terminal_console(stderr: bool = False) -> Console:
    """Return a console on standard output, or on standard error."""
    return Console(stderr=stderr, highlight=False, theme=PROGRESS)
