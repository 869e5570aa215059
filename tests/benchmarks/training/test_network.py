"""What the benchmark of networks concludes from times; none is measured here."""

import pytest

from benchmarks.harness.side_by_side import Measured
from benchmarks.training import network


def trained(step: float, exposed: float) -> list[Measured]:
    figures = {"step_seconds": step, "exposed_exchange_seconds": exposed, "exchange_seconds": 0.1}
    return [Measured({}, figures, {})] * 3


def test_training_over_a_link_is_measured_by_the_step() -> None:
    cells = [network.Cell(name, 1, "1 Gbit/s", exchange) for name in network.BACKENDS for exchange in network.EXCHANGES]
    measured = dict(
        zip(
            [cell.name for cell in cells],
            [trained(0.4, 0.1), trained(0.32, 0.02), trained(0.2, 0), trained(2, 2)],
            strict=True,
        )
    )
    found = {finding.name: finding.interval.estimate for finding in network.of_pair("mxnet", 1, "1 Gbit/s", measured)}
    assert found == pytest.approx(
        {
            "mxnet, width 1, 1 Gbit/s: a step, during / after": 0.8,
            "mxnet, width 1, 1 Gbit/s, after": 640,
            "mxnet, width 1, 1 Gbit/s, after: a step in communication": 100,
            "mxnet, width 1, 1 Gbit/s, after: of its time": 25,
            "mxnet, width 1, 1 Gbit/s, after: the exchange by itself": 100,
            "mxnet, width 1, 1 Gbit/s, during": 800,
            "mxnet, width 1, 1 Gbit/s, during: a step in communication": 20,
            "mxnet, width 1, 1 Gbit/s, during: of its time": 6.25,
            "mxnet, width 1, 1 Gbit/s, during: the exchange by itself": 100,
        }
    )
    lines = network.table_of(1, ["1 Gbit/s"], measured).splitlines()
    assert lines[4:] == [
        "| 1 Gbit/s | after | 640 | 100 ms (25%) | 1,280 | 0 ms (0%) |",
        "| 1 Gbit/s | during | 800 | 20 ms (6%) | 128 | 2,000 ms (100%) |",
    ]
    assert {line.count("|") for line in lines[2:]} == {7}
