"""Sentences without the bounds of what they tell, which depend on how noise is drawn."""

import re

__all__ = ["without_bounds"]

BOUNDS = re.compile(r" \(−?[\d.,]+(?:–| … )−?[\d.,]+%?\)")


def without_bounds(sentence: str) -> str:
    """Write `2.00 (1.90–2.10) × as fast` as `2.00 × as fast`."""
    return BOUNDS.sub("", sentence)
