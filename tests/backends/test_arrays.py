"""Rows are divided evenly, the extra ones to the first devices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Backend
from backends.arrays import row_ranges

DTYPES = ("float32", "float64", "int32", "int64", "uint8")


@given(rows=st.integers(0, 1000), parts=st.integers(1, 50))
def test_ranges_cover_all_rows_in_order_and_differ_by_one_at_most(rows: int, parts: int) -> None:
    ranges = row_ranges(rows, parts)
    lengths = [part.stop - part.start for part in ranges]
    assert [row for part in ranges for row in range(rows)[part]] == list(range(rows))
    assert len(ranges) == parts
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize(("rows", "devices", "lengths"), [(5, 2, [3, 2]), (1, 3, [1, 0, 0]), (4, 3, [2, 1, 1])])
@pytest.mark.parametrize("dtype", DTYPES)
def test_shards_hold_the_rows(backend: Backend, rows: int, devices: int, lengths: list[int], dtype: str) -> None:
    x = np.arange(rows * 4).reshape(rows, 4).astype(dtype)
    shards = [backend.to_numpy(shard) for shard in backend.split_and_load(x, backend.devices[:devices])]
    assert [len(shard) for shard in shards] == lengths
    assert {shard.dtype.name for shard in shards} == {dtype}
    np.testing.assert_array_equal(np.concatenate(shards), x)


def test_a_single_shard_does_not_share_memory_with_its_source(backend: Backend) -> None:
    x = np.ones((2, 2), dtype=np.float32)
    (shard,) = backend.split_and_load(x, backend.devices[:1])
    x[:] = 7
    np.testing.assert_array_equal(backend.to_numpy(shard), np.ones((2, 2)))
