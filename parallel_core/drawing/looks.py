"""How blocks of a timeline look, in all pictures of it."""

from collections.abc import Mapping

from parallel_core.drawing.colours import COLOURS
from parallel_core.timeline.lanes import Block, Look

__all__ = ["LOOKS", "opacity"]

LOOKS: Mapping[Look, tuple[str, str]] = {
    "compute": ("computation", COLOURS[0]),
    "copy": ("copy", COLOURS[1]),
    "exchange": ("exchange", COLOURS[2]),
    "host": ("Python", "#888888"),
    "wait": ("waiting", "#888888"),
}
"""A name in the legend, and a colour."""

FAINTEST = 0.2
OF_WAITS = 0.35


def opacity(block: Block) -> float:
    """Return how strongly a block of a timeline is coloured: the less of it was busy, the paler."""
    return (OF_WAITS if block.look == "wait" else 1.0) * (FAINTEST + (1 - FAINTEST) * block.busy_share)
