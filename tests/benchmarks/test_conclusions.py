"""What the benchmarks conclude from times and memory; none is measured here."""

from pathlib import Path

import pytest

from backends.registry.variants import all_variants, found_on
from benchmarks import allreduce, processes
from benchmarks.experiments.variants import SHOWN, contrasts
from benchmarks.harness.side_by_side import Measured
from benchmarks.training import growth, network
from tests.benchmarks.synthetic import measured


def test_targets_of_allreduce_point_the_right_way() -> None:
    names = [name for cases in allreduce.PEERS.values() for name in cases]
    seconds = {name: {"4KiB": [50e-6] * 3, "100MB": [0.1] * 3} for name in names}
    seconds["torch, ours, native"] = {"4KiB": [90e-6] * 3, "100MB": [0.01] * 3}
    seconds["torch, ours, plain copy"] = {"4KiB": [1e-6] * 3, "100MB": [0.008] * 3}
    held = {finding.name: finding for finding in allreduce.targets(seconds, "100MB") if finding.target}
    ratio = held["100MB: torch, ours, native / torch, the book's loop, transfers that copy"]
    share = held["100MB: torch, ours, native: share of the copy-bound limit"]
    slower = held["4KiB: torch, ours, native − torch, ours, star"]
    assert (ratio.interval.estimate, ratio.verdict) == (pytest.approx(10), "met")
    assert (share.interval.estimate, share.verdict) == (pytest.approx(80), "met")
    assert (slower.interval.estimate, slower.verdict) == (pytest.approx(40), "missed")
    assert held["100MB: mxnet, ours, native / mxnet, kvstore device"].verdict == "missed"


def test_sums_between_processes_are_held_against_the_stream_of_the_same_process() -> None:
    # The machine drifts; the ratio does not.
    drifting = [
        measured(**{"native, 1 MB": (1e-3 * d, 2e-3 * d, 9e-3 * d), "one TCP stream, 1 MB": (1e-3 * d,)})
        for d in (1.0, 3.0, 2.0)
    ]
    taken, speed, stream, share = processes.of_sums("gloo", drifting, [10**6])
    assert (taken.interval.estimate, taken.unit) == (pytest.approx(4000), "μs")
    assert (speed.interval.estimate, stream.interval.estimate) == pytest.approx((0.25, 0.5))
    assert (share.interval.low, share.interval.high) == pytest.approx((50, 50))


def test_growth_is_the_slope_of_a_line_and_drawn(tmp_path: Path) -> None:
    assert growth.line([5.0, 8.0, 11.0, 14.0]) == pytest.approx((3, 2, 0))
    assert growth.line([5.0, 8.0, 11.0, 15.0])[2] > 0.1
    own = {"mxnet, queue": [measured(**{f"{d} queued": (d * 1e-6, 1.0) for d in (1, 10)})]}
    for count in growth.DEVICES:
        own[f"mxnet, {growth.devices(count)}"] = [measured(epoch=(1.0 / count,))]
        peak = {"peak_bytes": 3.0 * count, "parameter_bytes": 1.0}
        own[f"mxnet, memory of {count}"] = [Measured({}, peak, {})]
    values = growth.values_of("mxnet", own, (1, 10), 100)
    found = {one.name: one.interval.estimate for one in growth.findings_of("mxnet", *values)}
    assert found["mxnet: issuing an operation when 10 are queued"] == pytest.approx(10)
    assert found["mxnet: dearest depth / cheapest"] == pytest.approx(10)
    assert found["mxnet: training on 2 devices"] == pytest.approx(200)
    assert found["mxnet: 4 devices / 2 devices"] == pytest.approx(2)
    assert found["mxnet: memory that each further device adds"] == pytest.approx(3)
    with (tmp_path / "growth.svg").open("wb") as stream:
        growth.draw_growth({"mxnet": values, "torch": values}, stream)
    assert (tmp_path / "growth.svg").read_bytes().startswith(b"<svg")


def trained(step: float, exposed: float) -> list[Measured]:
    figures = {"step_seconds": step, "exposed_exchange_seconds": exposed, "exchange_seconds": 0.1}
    return [Measured({}, figures, {})] * 3


def test_training_over_a_link_is_measured_by_the_step() -> None:
    mxnet, torch = (network.cell_of(name, "1 Gbit/s") for name in ("mxnet", "torch"))
    given = {
        f"{mxnet}, after": trained(0.4, 0.1),
        f"{mxnet}, during": trained(0.32, 0.016),
        f"{torch}, after": trained(0.2, 0),
        f"{torch}, during": trained(2, 2),
    }
    pairs = [*network.of_pair(mxnet, given), *network.of_pair(torch, given)]
    found = {one.name: one.interval.estimate for one in pairs}
    assert found[f"{mxnet}: a step, during / after"] == pytest.approx(0.8)
    assert found[f"{mxnet}, during: the exchange by itself"] == pytest.approx(100)
    assert network.table_of({"1 Gbit/s": 1e9}, pairs).splitlines()[4:] == [
        "| 1 Gbit/s | after | 640 | 100 ms (25 %) | 1,280 | 0 ms (0 %) |",
        "| 1 Gbit/s | during | 800 | 16 ms (5 %) | 128 | 2,000 ms (100 %) |",
    ]


def test_every_setting_of_variants_on_cpus_is_shown() -> None:
    on_cpus = {
        variant.setting
        for variant in all_variants()
        if not variant.default and any("cpu" in kinds for kinds in found_on(variant.name).values())
    }
    assert on_cpus == set(SHOWN) == {one.setting for one in contrasts()}
