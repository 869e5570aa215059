"""Okabe and Ito's colours, which remain apart for colour-blind readers, on white and on black."""

from collections.abc import Mapping

from backends.profiling import Kind

__all__ = ["COLOURS", "KINDS", "opacity"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

KINDS: Mapping[Kind, tuple[str, str]] = {
    "compute": ("computation", COLOURS[0]),
    "copy": ("copy", COLOURS[1]),
    "exchange": ("exchange", COLOURS[2]),
    "host": ("Python", "#A8A8A8"),
}
"""What a timeline's colours mean: a kind's name in the legend, and its colour."""

FAINTEST = 0.2


def opacity(busy_share: float) -> float:
    """Return how strongly a block of a timeline is coloured: the less of it was busy, the paler."""
    return FAINTEST + (1 - FAINTEST) * busy_share
