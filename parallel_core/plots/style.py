"""How blocks of a timeline look, in all pictures of it."""

from collections.abc import Mapping
from typing import NamedTuple

from parallel_core.trace_analysis.lanes import Block, Look

__all__ = ["COLOURS", "LOOKS", "Appearance", "opacity"]


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class Appearance(NamedTuple):
    """A name in the legend, a colour, and the opacity of a block that was busy all the time."""

    name: str
    colour: str
    strength: float = 1.0


LOOKS: Mapping[Look, Appearance] = {
    "compute": Appearance("computation", COLOURS[0]),
    "copy": Appearance("copy", COLOURS[1]),
    "exchange": Appearance("exchange", COLOURS[2]),
    "host": Appearance("Python", "#888888"),
    "wait": Appearance("waiting", "#888888", 0.35),
}


FAINTEST = 0.2


def opacity(block: Block) -> float:
    """Return how strongly a block has its look's colour: the less of it was busy, the paler."""
    return FAINTEST + (1 - FAINTEST) * block.busy_share
