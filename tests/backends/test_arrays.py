"""Rows are divided evenly, the extra ones to the first devices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backends import Backend
from backends.arrays import row_ranges


@given(rows=st.integers(0, 1000), parts=st.integers(1, 50))
def test_ranges_cover_all_rows_in_order_and_differ_by_one_at_most(rows: int, parts: int) -> None:
    ranges = row_ranges(rows, parts)
    lengths = [part.stop - part.start for part in ranges]
    assert [row for part in ranges for row in range(rows)[part]] == list(range(rows))
    assert len(ranges) == parts
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


def test_a_single_shard_does_not_share_memory_with_its_source(backend: Backend) -> None:
    x = np.ones((2, 2), dtype=np.float32)
    (shard,) = backend.split_and_load(x, backend.devices[:1])
    x[:] = 7
    np.testing.assert_array_equal(backend.to_numpy(shard), np.ones((2, 2)))
