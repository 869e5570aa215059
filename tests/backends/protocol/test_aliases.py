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
from tests.backends.protocol.arrays import Load, full, products


def halves(backend: Backend, x: Array) -> Array:
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
    """Occupy the first device, and what copies from it to the third one; return what it
    computes.
    """
    made = products(backend, full(backend, 1 / 300, 300, 300))
    backend.copy_to(made, backend.devices[2])
    return made


def values_of(backend: Backend, x: Array) -> set[float]:
    return set(np.concatenate([*map(np.ravel, tree_leaves(backend.to_numpy(x)))]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["out", "allreduce", "sgd"])
def test_who_reads_by_any_name_reads_what_was_there_before(
    backend: Backend, name: str, how: str
) -> None:
    x, other, ops = full(backend, 5, 4), full(backend, 7, 4, device=1), backend.ops
    named = NAMES[name](backend, x)
    late = backend.launch(lambda y: ops.multiply(ops.total(y), 0.0), keep_busy(backend))

    def read(y: Array, zero: Array) -> Array:
        return ops.add(ops.concatenate(y) if isinstance(y, tuple) else y, zero)

    readers = [backend.copy_to(named, backend.devices[2]), backend.launch(read, named, late)]
    if how == "out":
        expected, after = 7, backend.copy_to(other, backend.devices[0], out=x)
    elif how == "allreduce":
        expected, after = 12, backend.allreduce([x, other])[0]
    else:
        expected, after = 4, backend.launch(ops.sgd, (x,), (full(backend, 1, 4),), 1.0)[0]
    assert values_of(backend, after) == {expected}
    assert [values_of(backend, reader) for reader in readers] == [{5}, {5}]


@pytest.mark.parametrize("name", ["a part", "a part, counted from the end", "a part, flattened"])
def test_a_copy_of_all_is_of_what_was_there_before_a_part_was_overwritten(
    backend: Backend, name: str
) -> None:
    x = full(backend, 5, 4)
    if name == "a part, flattened" and backend.name == "mxnet":
        pytest.skip("its flatten may copy")
    part = NAMES[name](backend, x)
    ones = backend.launch(lambda y: 0 * y + 1, part)
    keep_busy(backend)
    copy = backend.copy_to(x, backend.devices[2])
    assert values_of(backend, backend.copy_to(ones, backend.devices[0], out=part)) == {1}
    assert values_of(backend, copy) == {5}


def test_parts_that_were_not_consumed_stay(backend: Backend) -> None:
    parts = backend.launch(lambda y: backend.ops.split(y, (1, 2, 1)), full(backend, 5, 4))
    total, _ = backend.allreduce([parts[1], full(backend, 1, 2, device=1)])
    assert values_of(backend, total) == {6}
    assert values_of(backend, backend.launch(backend.ops.add, parts[0], parts[-1])) == {10}


LAST_PLACE = 4
"""Parts of one array begin at places from 0 to this one, and are up to three places long."""
Places = Sequence[int]


def part(backend: Backend, whole: Array, start: int, length: int) -> Array:
    lengths = (start, length, whole_length(length) - start - length)
    return backend.launch(lambda x: backend.ops.split(x, lengths), whole)[1]


def whole_length(length: int) -> int:
    return LAST_PLACE * (length // 3 or 1) + length


def sum_with_ones(backend: Backend, targets: Array, sources: Array) -> Array:
    ones = backend.asarray(tuple(map(np.ones_like, backend.to_numpy(sources))), backend.devices[1])
    return backend.allreduce([ones, targets])[1]


CONSUMING: dict[str, tuple[Callable[..., Array], Callable[..., np.ndarray]]] = {
    "copy_to": (
        lambda backend, x, y: backend.copy_to(y, backend.devices[0], out=x),
        lambda _, y: y,
    ),
    "allreduce": (sum_with_ones, lambda x, _: x + 1),
    "sgd": (
        lambda backend, x, y: backend.launch(backend.ops.sgd, x, y, 0.5),
        lambda x, y: x - y / 2,
    ),
    "sgd_while_finite": (
        lambda backend, x, y: backend.launch(
            backend.ops.sgd_while_finite, x, y, 0.5, full(backend, 1, 1)
        )[0],
        lambda x, y: x - y / 2,
    ),
}
"""What each does with tuples of targets and sources, and what it gives for one of each."""


def overlapping(how: str, targets: Places, sources: Places, length: int) -> bool:
    """Return whether parts that begin at these places overlap in a way that the protocol
    forbids.
    """
    consumed = [*targets, *(sources if how == "sgd_while_finite" else ())]
    read = sources if how in ("copy_to", "sgd") else ()
    pairs = [*combinations(consumed, 2), *product(targets, read)]
    return any(abs(one - other) < length for one, other in pairs)


@example([(0, 1)], 3, False)
@example([(1, 0)], 3, False)
@example([(0, 4), (4, 0)], 3, False)
@example([(0, 4), (0, 4)], 3, False)
@example([(0, 0), (4, 4)], 3, False)
@given(
    st.lists(
        st.tuples(st.integers(0, LAST_PLACE), st.integers(0, LAST_PLACE)), min_size=1, max_size=3
    ),
    st.sampled_from([1, 2, 3, 300_000]),
    st.booleans(),
)
@pytest.mark.parametrize("how", CONSUMING)
def test_what_is_consumed_and_overlaps_fails_or_is_as_if_the_memories_were_different(
    load: Load, how: str, places: list[tuple[int, int]], length: int, apart: bool
) -> None:
    """Consume parts of one memory, at a place for each target and its source, which are in another
    one if `apart`.
    """
    backend, (call, expected) = load(2), CONSUMING[how]
    targets, sources = (
        [place * (length // 3 or 1) for place in some] for some in zip(*places, strict=True)
    )
    contents = np.arange(whole_length(length), dtype=np.float32)
    whole, other = (backend.asarray(contents, backend.devices[0]) for _ in range(2))
    consumed, read = (
        tuple(part(backend, array, start, length) for start in starts)
        for array, starts in ((whole, targets), (other if apart else whole, sources))
    )
    wrong = overlapping(how, targets, () if apart else sources, length)
    wrong = wrong or (apart and how == "sgd_while_finite" and overlapping(how, sources, (), length))
    if wrong and backend.name == "mxnet":
        with pytest.raises(BackendError, match=r"mxnet on cpu:1\b.*" + how) as refused:
            call(backend, consumed, read)
        assert not isinstance(refused.value, ComputationError)
        np.testing.assert_array_equal(backend.to_numpy(whole), contents)
        return
    try:
        found = backend.to_numpy(call(backend, consumed, read))
    except ComputationError:
        assert wrong
        return
    for one, target, source in zip(found, targets, sources, strict=True):
        np.testing.assert_array_equal(
            one, expected(*(contents[i : i + length] for i in (target, source)))
        )
