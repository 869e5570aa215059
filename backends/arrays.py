"""Values: arrays, or tuples of values such as a model's parameters. Every verb takes both."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

BLOCK_BYTES = 2**19
"""Several arrays of this size fit in a core's cache of 1 MiB; a quarter or twice of it is slower by
a quarter.
"""
SHAPES: Mapping[str, tuple[str, ...]] = {
    "matmul": ("mk", "kn"),
    "conv2d": ("nchw", "ocij", "o"),
    "avg_pool2d": ("nchw",),
    "cross_entropy": ("nk", "n"),
    "count_correct": ("nk", "n"),
    "split": ("n",),
}
"""What ops take: a letter stands for one length. Frameworks would broadcast, or take more
dimensions.
"""


def tree_map(fn: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Return a value with `fn` applied to each of its arrays; tuples stay tuples.

    `fn` also takes the arrays at the same position in each of `others`.
    """
    is_tuple = isinstance(value, tuple | list)
    for other in others:
        # An array is iterable too: its rows would be taken for items.
        if isinstance(other, tuple | list) != is_tuple:
            raise ValueError("a tuple and an array do not fit together")
    if is_tuple:
        return tuple(tree_map(fn, *items) for items in zip(value, *others, strict=True))
    return fn(value, *others)


def tree_leaves(value: Any) -> Iterator[Any]:
    """Iterate over the arrays of a value, depth first."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, tuple | list):
            pending.extend(reversed(item))
        else:
            yield item


def rebuilt(kind: type[tuple] | type[list], items: Iterable[Any]) -> Any:
    """Return a list or a tuple of these items; `kind` may be the type of a named tuple."""
    if issubclass(kind, tuple):
        # A named tuple's own constructor takes its items one by one.
        return tuple.__new__(kind, items)
    return kind(items)


def check_equal(arrays: Sequence[Any], verb: str = "allreduce") -> None:
    """Raise ValueError if arrays that a verb or op takes together differ in shape or dtype."""
    x = arrays[0]
    for y in arrays[1:]:
        if x.shape != y.shape or x.dtype != y.dtype:
            raise ValueError(
                f"{verb} needs equal arrays, not {tuple(x.shape)} {x.dtype} "
                f"and {tuple(y.shape)} {y.dtype}"
            )


def check_shapes(op: str, *arrays: Any) -> None:
    """Raise ValueError if arrays do not have the shapes that an op takes."""
    shapes = [tuple(x.shape) for x in arrays]
    if _fit(SHAPES[op], shapes):
        return
    expected_texts = [f"({', '.join(letters)})" for letters in SHAPES[op]]
    expected = " and ".join(expected_texts)
    given = " and ".join(map(str, shapes))
    raise ValueError(f"{op} takes arrays of shapes {expected}, not {given}")


def _fit(patterns: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether shapes fit their patterns, in which each letter stands for one length."""
    length_of: dict[str, int] = {}
    for letters, shape in zip(patterns, shapes, strict=True):
        if len(letters) != len(shape):
            return False
        for letter, length in zip(letters, shape, strict=True):
            first_length = length_of.setdefault(letter, length)
            if length != first_length:
                return False
    return True


def parts_of(x: Any, lengths: Sequence[int]) -> tuple[Any, ...]:
    """Return the parts of a vector that have these lengths, as views where slices are views."""
    check_lengths(x, lengths)
    parts = []
    start = 0
    for length in lengths:
        parts.append(x[start : start + length])
        start += length
    return tuple(parts)


def pooling_windows(x: Any, size: int) -> Any:
    """Return an array of (images, channels, rows, size, columns, size): the windows that images
    have side by side.

    Raises ValueError if there is none.
    """
    check_shapes("avg_pool2d", x)
    images, channels, height, width = x.shape
    if not 0 < size <= min(height, width):
        raise ValueError(
            f"avg_pool2d has no windows of {size} × {size} in images of {height} × {width}"
        )
    rows, columns = height // size, width // size
    covered = x[:, :, : rows * size, : columns * size]
    return covered.reshape(images, channels, rows, size, columns, size)


def check_lengths(x: Any, lengths: Sequence[int]) -> None:
    """Raise ValueError if a vector cannot be divided into vectors of these lengths."""
    check_shapes("split", x)
    if sum(lengths) != len(x) or min(lengths, default=0) < 0:
        lengths_text = ", ".join(map(str, lengths))
        raise ValueError(f"a vector of {len(x)} is not divided into lengths of {lengths_text}")


def check_vectors(vectors: Sequence[Any]) -> None:
    """Raise ValueError unless these are vectors of one dtype, which can be laid end to end."""
    dimensions = {x.ndim for x in vectors}
    dtypes = {x.dtype for x in vectors}
    if dimensions != {1} or len(dtypes) > 1:
        raise ValueError("concatenate takes vectors of one dtype, one at least")


def check_terms(terms: Sequence[Any]) -> None:
    """Raise ValueError if arrays cannot be summed: they differ in shape or dtype, or are bool."""
    check_equal(terms)
    if "bool" in str(terms[0].dtype):
        raise ValueError("allreduce has no sum of bool: load the arrays as uint8 or int32")


def sum_shard(vectors: Sequence[Any], shard: int, shards: int) -> None:
    """Replace one of `shards` shards of every vector by the vectors' sum there.

    The vectors, one per device, are views of arrays in one memory: of NumPy or PyTorch, equal in
    length and dtype.
    """
    first, *others = vectors
    rows = row_ranges(len(first), shards)[shard]
    block_length = max(1, BLOCK_BYTES // first.itemsize)
    for start in range(rows.start, rows.stop, block_length):
        block = slice(start, min(start + block_length, rows.stop))
        total = first[block]
        for vector in others:
            total += vector[block]
        for vector in others:
            vector[block] = total


def row_ranges(rows: int, parts: int) -> tuple[slice, ...]:
    """Divide `rows` into `parts` consecutive slices whose lengths differ by one at most.

    The first slices are the longer ones (5 over 2: 3, 2; 1 over 3: 1, 0, 0), as in MXNet's
    `gluon.utils.split_data(even_split=False)`. Torch's `chunk` would drop the empty ones.
    """
    quotient, remainder = divmod(rows, parts)
    lengths = [quotient + 1] * remainder + [quotient] * (parts - remainder)
    ranges = []
    start = 0
    for length in lengths:
        ranges.append(slice(start, start + length))
        start += length
    return tuple(ranges)
