"""What the benchmark of growth concludes from times and memory; none is measured here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.side_by_side import Measured
from benchmarks.training import growth
from tests.benchmarks.synthetic import measured


def test_growth_of_memory_is_the_slope_of_a_line() -> None:
    slope, start, off = growth.line([5.0, 8.0, 11.0, 14.0])
    assert (slope, start, off) == pytest.approx((3, 2, 0))
    assert growth.line([5.0, 8.0, 11.0, 15.0])[2] > 0.1


def test_growth_is_drawn(tmp_path: Path) -> None:
    processes = {f"{name}, queue": [measured(**{f"{d} queued": (1e-6,) for d in (1, 10)})] for name in growth.BACKENDS}
    for name in growth.BACKENDS:
        for count in growth.DEVICES:
            processes[f"{name}, {growth.devices(count)}"] = [measured(epoch=(1.0,))]
            peak = {"peak_bytes": 3.0 * count, "parameter_bytes": 1.0}
            processes[f"{name}, memory of {count}"] = [Measured({}, peak, {})]
    draw: Callable[..., None] = growth.draw_growth
    with (tmp_path / "growth.svg").open("wb") as stream:
        draw(processes, (1, 10), 100, stream)
    assert b">peak memory / parameters</text>" in (tmp_path / "growth.svg").read_bytes()
