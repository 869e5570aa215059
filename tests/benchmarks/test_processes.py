"""What the benchmark of processes concludes from times; none is measured here."""

import pytest

from benchmarks import processes
from tests.benchmarks.synthetic import measured


def test_sums_between_processes_are_held_against_the_stream_of_the_same_process() -> None:
    # The machine drifts; the ratio does not.
    drifting = [measured(**{"native, 1 MB": (2e-3 * d,), "one TCP stream, 1 MB": (1e-3 * d,)}) for d in (1.0, 3.0, 2.0)]
    taken, speed, share = processes.of_engine("gloo", drifting, [10**6])
    assert (taken.interval.estimate, taken.unit) == (pytest.approx(4000), "μs")
    assert (speed.interval.estimate, speed.unit) == (pytest.approx(0.25), "GB/s")
    assert (share.interval.low, share.interval.high) == pytest.approx((50, 50))


def test_half_of_there_and_back_is_the_latency() -> None:
    cases = {
        f"stream {way}, 4096 B": (seconds,)
        for way, seconds in (("there", 1e-3), ("back", 2e-3), ("there and back", 5e-4))
    }
    latency, there, back = processes.of_stream([measured(**cases)] * 3, [4096])
    assert latency.interval.estimate == pytest.approx(250)
    assert there.interval.estimate == pytest.approx(2 * back.interval.estimate)
