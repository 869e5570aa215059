"""Where a person's output goes, and its four colours: the terminal's own, which its theme makes readable."""

from rich.console import Console
from rich.theme import Theme

__all__ = ["ASIDE", "BAD", "DOUBTFUL", "GOOD", "terminal_console"]

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
