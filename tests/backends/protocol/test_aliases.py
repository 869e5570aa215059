"""What was launched before a value is consumed reads what was there before, by whatever name it
reads the memory.
"""

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends import Array, Backend, BackendError, ComputationError
from backends.arrays import tree_leaves
from tests.backends.protocol.arrays import Load, assert_equal, full, products


def halves(backend: Backend, x: Array) -> Array:
    """Launch a function that splits an array of four into two views."""
    return backend.launch(lambda y: backend.ops.split(y, (2, 2)), x)


NAMES: dict[str, Callable[[Backend, Array], Array]] = {
    "the array": lambda _, x: x,
    "a part": lambda backend, x: halves(backend, x)[0],
    "a part, counted from the end": lambda backend, x: halves(backend, x)[-2],
    "all parts": halves,
    "flattened": lambda backend, x: backend.launch(backend.ops.flatten, x),
    "a part, flattened": lambda backend, x: backend.launch(
        backend.ops.flatten, halves(backend, x)[0]
    ),
    "an item of a tuple": lambda backend, x: backend.launch(lambda y: (0 * y, (y,)), x)[-1][0],
}


def keep_busy(backend: Backend) -> Array:
    """Occupy the first device, and the queue that copies from it to the third one.

    Return the last product.
    """
    product = products(backend, full(backend, 1 / 300, 300, 300))
    backend.copy_to(product, backend.devices[2])
    return product


def values_of(backend: Backend, x: Array) -> set[float]:
    """Return the different numbers in a value."""
    arrays = tree_leaves(backend.to_numpy(x))
    return set(np.concatenate([array.ravel() for array in arrays]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["out", "allreduce", "sgd"])
def test_who_reads_by_any_name_reads_what_was_there_before(
    backend: Backend, name: str, how: str
) -> None:
    ops = backend.ops
    fives, sevens = full(backend, 5, 4), full(backend, 7, 4, device=1)
    fives_by_name = NAMES[name](backend, fives)
    late_zero = backend.launch(lambda y: ops.multiply(ops.total(y), 0.0), keep_busy(backend))

    def read(y: Array, zero: Array) -> Array:
        array = ops.concatenate(y) if isinstance(y, tuple) else y
        return ops.add(array, zero)

    copied = backend.copy_to(fives_by_name, backend.devices[2])
    read_late = backend.launch(read, fives_by_name, late_zero)
    if how == "out":
        expected = 7
        after = backend.copy_to(sevens, backend.devices[0], out=fives)
    elif how == "allreduce":
        expected = 12
        after, _ = backend.allreduce([fives, sevens])
    else:
        expected = 4
        gradients = (full(backend, 1, 4),)
        after = backend.launch(ops.sgd, (fives,), gradients, 1.0)[0]

    assert values_of(backend, after) == {expected}
    assert values_of(backend, copied) == {5}
    assert values_of(backend, read_late) == {5}


@pytest.mark.parametrize("name", ["a part", "a part, counted from the end", "a part, flattened"])
def test_a_copy_of_all_is_of_what_was_there_before_a_part_was_overwritten(
    backend: Backend, name: str
) -> None:
    if name == "a part, flattened" and backend.name == "mxnet":
        pytest.skip("its flatten may copy")
    fives = full(backend, 5, 4)
    part = NAMES[name](backend, fives)
    ones = backend.launch(lambda y: 0 * y + 1, part)
    keep_busy(backend)
    copy = backend.copy_to(fives, backend.devices[2])
    overwritten = backend.copy_to(ones, backend.devices[0], out=part)
    assert values_of(backend, overwritten) == {1}
    assert values_of(backend, copy) == {5}


def test_parts_that_were_not_consumed_stay(backend: Backend) -> None:
    fives = full(backend, 5, 4)
    parts = backend.launch(lambda y: backend.ops.split(y, (1, 2, 1)), fives)
    # The sum takes the memory of the part in the middle.
    total, _ = backend.allreduce([parts[1], full(backend, 1, 2, device=1)])
    assert values_of(backend, total) == {6}
    sum_of_others = backend.launch(backend.ops.add, parts[0], parts[-1])
    assert values_of(backend, sum_of_others) == {10}


LAST_START = 4
"""Parts of one array begin at elements from 0 to this one, and are up to three elements long.

Longer parts begin at multiples of a third of their length.
"""
Starts = Sequence[int]


def part(backend: Backend, whole: Array, start: int, length: int) -> Array:
    """Launch a function that returns a view of a part of an array."""
    length_behind = whole_length(length) - start - length
    lengths = (start, length, length_behind)
    return backend.launch(lambda x: backend.ops.split(x, lengths), whole)[1]


def whole_length(length: int) -> int:
    """Return the length of an array of which parts of this length are views."""
    return LAST_START * unit_of_starts(length) + length


def unit_of_starts(length: int) -> int:
    """Return the distance of two starts of parts of this length: a third of it, or one element."""
    return max(1, length // 3)


def sum_with_ones(backend: Backend, targets: Array, sources: Array) -> Array:
    """Sum a tuple of arrays with ones on the other device, and return the sum on the first."""
    ones = tuple(np.ones_like(source) for source in backend.to_numpy(sources))
    loaded_ones = backend.asarray(ones, backend.devices[1])
    _, total = backend.allreduce([loaded_ones, targets])
    return total


def copy_to_targets(backend: Backend, targets: Array, sources: Array) -> Array:
    """Copy the sources to the memory of the targets."""
    return backend.copy_to(sources, backend.devices[0], out=targets)


def descend(backend: Backend, targets: Array, sources: Array) -> Array:
    """Update the targets with the sources as gradients."""
    return backend.launch(backend.ops.sgd, targets, sources, 0.5)


def descend_while_finite(backend: Backend, targets: Array, sources: Array) -> Array:
    """Update the targets with the sources as gradients, which this consumes too."""
    guard = full(backend, 1, 1)
    result = backend.launch(backend.ops.sgd_while_finite, targets, sources, 0.5, guard)
    return result[0]


Call = Callable[[Backend, Array, Array], Array]
CONSUMING: dict[str, tuple[Call, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "copy_to": (copy_to_targets, lambda target, source: source),
    "allreduce": (sum_with_ones, lambda target, source: target + 1),
    "sgd": (descend, lambda target, source: target - source / 2),
    "sgd_while_finite": (descend_while_finite, lambda target, source: target - source / 2),
}
"""Calls that consume a tuple of targets, with a tuple of sources, and what they make of a target
and its source in NumPy.
"""


def overlapping(how: str, targets: Starts, sources: Starts, length: int) -> bool:
    """Return whether parts with these starts overlap in a way that the protocol forbids."""
    consumed = list(targets)
    only_read: Starts = ()
    if how == "sgd_while_finite":
        consumed += sources
    elif how in ("copy_to", "sgd"):
        only_read = sources
    pairs_of_consumed = combinations(consumed, 2)
    pairs_with_read = product(targets, only_read)
    for start, other_start in (*pairs_of_consumed, *pairs_with_read):
        if abs(start - other_start) < length:
            return True
    return False


def is_forbidden(how: str, targets: Starts, sources: Starts, length: int, apart: bool) -> bool:
    """Return whether parts of one memory, or of two if `apart`, must not be passed to a call."""
    if not apart:
        return overlapping(how, targets, sources, length)
    consumes_sources = how == "sgd_while_finite"
    if consumes_sources and overlapping(how, sources, (), length):
        return True
    return overlapping(how, targets, (), length)


@example([(0, 1)], 3, False)
@example([(1, 0)], 3, False)
@example([(0, 4), (4, 0)], 3, False)
@example([(0, 4), (0, 4)], 3, False)
@example([(0, 0), (4, 4)], 3, False)
@given(
    st.lists(
        st.tuples(st.integers(0, LAST_START), st.integers(0, LAST_START)), min_size=1, max_size=3
    ),
    st.sampled_from([1, 2, 3, 300_000]),
    st.booleans(),
)
@pytest.mark.parametrize("how", CONSUMING)
def test_what_is_consumed_and_overlaps_fails_or_is_as_if_the_memories_were_different(
    load: Load, how: str, starts: list[tuple[int, int]], length: int, apart: bool
) -> None:
    """Consume parts of one memory; the sources are in another memory if `apart`.

    Each pair of `starts` is that of a target and its source.
    """
    backend = load(2)
    unit = unit_of_starts(length)
    targets = [unit * target for target, _ in starts]
    sources = [unit * source for _, source in starts]
    contents = np.arange(whole_length(length), dtype=np.float32)
    whole = backend.asarray(contents, backend.devices[0])
    whole_of_sources = backend.asarray(contents, backend.devices[0]) if apart else whole
    target_parts = tuple(part(backend, whole, start, length) for start in targets)
    source_parts = tuple(part(backend, whole_of_sources, start, length) for start in sources)
    forbidden = is_forbidden(how, targets, sources, length, apart)
    consume, in_numpy = CONSUMING[how]

    if forbidden and backend.name == "mxnet":
        with pytest.raises(BackendError, match=r"mxnet on cpu:1\b.*" + how) as refused:
            consume(backend, target_parts, source_parts)
        assert not isinstance(refused.value, ComputationError)
        assert_equal(backend, whole, contents)
        return
    try:
        results = backend.to_numpy(consume(backend, target_parts, source_parts))
    except ComputationError:
        assert forbidden
        return
    for result, target, source in zip(results, targets, sources, strict=True):
        target_contents = contents[target : target + length]
        source_contents = contents[source : source + length]
        np.testing.assert_array_equal(result, in_numpy(target_contents, source_contents))
