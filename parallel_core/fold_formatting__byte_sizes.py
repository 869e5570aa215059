"""Sizes in bytes as people write them: `4 MiB`, `100MB`, `4KiB..256MiB`.

A library for this (humanize, say) writes sizes and reads none, and rounds what it writes.
"""

import re
from fractions import Fraction

__all__ = ["parse_size", "parse_sizes", "write_size"]

BINARY = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
DECIMAL = {"GB": 10**9, "MB": 10**6, "kB": 10**3}
BYTES = {unit.lower(): factor for unit, factor in (BINARY | DECIMAL | {"B": 1, "": 1}).items()}
WRITTEN = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)\s*")
STEP = 4
"""The factor from one size of a range to the next."""


def parse_size(text: str) -> int:
    """Read a size in bytes, with a unit or without; raises ValueError for anything else than a whole number ≥ 1."""
    found = WRITTEN.fullmatch(text)
    if found is None or found[2].lower() not in BYTES:
        raise ValueError(f"{text!r} is not a size in bytes (4096, 4KiB, 1.5MiB, 100MB, 1GiB)")
    size = Fraction(found[1]) * BYTES[found[2].lower()]
    if size.denominator != 1 or size < 1:
        raise ValueError(f"{text!r} is not a whole number of bytes, at least one")
    return int(size)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read sizes with commas between them, and ranges in factors of 4: `4KiB..64KiB` is 4, 16 and 64 KiB.

    A range ends at or below its second size. Raises ValueError.
    """
    sizes: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        size, end = parse_size(first), parse_size(last if dots else first)
        if size > end:
            raise ValueError(f"the range {part.strip()!r} ends below its beginning")
        while size <= end:
            sizes.append(size)
            size *= STEP
    return tuple(sizes)


def write_size(size: int) -> str:
    """Write a size so that `parse_size` reads the same one: in the largest unit of which it is a whole number.

    Binary units come first: 4194304 is `4 MiB`, 100000000 is `100 MB`, 1001 is `1001 B`.
    """
    for unit, factor in (BINARY | DECIMAL).items():
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"
