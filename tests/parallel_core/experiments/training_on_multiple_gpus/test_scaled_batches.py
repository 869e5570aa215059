"""Numbers of devices, and the batches that belong to them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import (
    FIXED,
    SCALED,
    case_name,
    device_counts,
    plans,
)


@given(st.integers(1, 1000))
def test_devices_double_up_to_all_of_them(loaded: int) -> None:
    counts = device_counts(loaded)
    assert counts[0] == 1
    assert counts[-1] == loaded
    assert all(before < after <= 2 * before for before, after in pairwise(counts))
    assert all(after == 2 * before for before, after in pairwise(counts[:-1]))


@given(st.integers(1, 100), st.integers(1, 64))
def test_every_device_beyond_the_first_has_both_kinds_of_batch(batch_size: int, loaded: int) -> None:
    planned = plans(batch_size, loaded)
    assert planned.keys() == {(FIXED, count) for count in device_counts(loaded)} | {
        (SCALED, count) for count in device_counts(loaded)[1:]
    }
    assert all(batch == batch_size * (count if kind == SCALED else 1) for (kind, count), batch in planned.items())
    assert len({case_name(*plan, loaded) for plan in planned}) == len(planned)
