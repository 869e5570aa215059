"""Bandwidths as nccl-tests defines them."""

import pytest

from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidth import algorithm_bandwidth, bus_bandwidth


def test_gigabytes_are_decimal() -> None:
    assert algorithm_bandwidth(10**9, 1) == 1
    assert algorithm_bandwidth(2**30, 0.5) == pytest.approx(2.147483648)


@pytest.mark.parametrize(("devices", "factor"), [(1, 0), (2, 1), (4, 1.5), (8, 1.75)])
def test_a_link_carries_what_every_device_must_take_in_and_send(devices: int, factor: float) -> None:
    assert bus_bandwidth(10, devices) == pytest.approx(10 * factor)
