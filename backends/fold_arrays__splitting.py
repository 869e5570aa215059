"""How rows are divided over devices: evenly, the extra rows to the first devices."""

from itertools import accumulate, pairwise

__all__ = ["row_ranges"]


def row_ranges(rows: int, parts: int) -> tuple[slice, ...]:
    """Divide `rows` into `parts` consecutive slices whose lengths differ by one at most.

    The first slices are the longer ones (5 over 2: 3, 2; 1 over 3: 1, 0, 0), as in MXNet's
    `gluon.utils.split_data(even_split=False)`. Torch's `chunk` would drop the empty ones.
    """
    quotient, remainder = divmod(rows, parts)
    lengths = (quotient + (part < remainder) for part in range(parts))
    return tuple(slice(start, stop) for start, stop in pairwise(accumulate(lengths, initial=0)))
