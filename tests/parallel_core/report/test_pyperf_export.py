"""pyperf's suites, whatever was measured."""

from dataclasses import replace

import pytest

from parallel_core.comparison.cells import Comparison
from parallel_core.report.pyperf_export import suites
from tests.parallel_core.comparison.made_up import comparison, failed, measured, on_other_backend, parallel, result

TORCH = parallel("torch")


def test_a_suite_holds_values_and_warm_ups_of_every_process() -> None:
    (name, suite), *others = suites(comparison(measured(TORCH, (1.0, 1.1)), failed(parallel("mxnet")))).items()
    assert (name, others) == ("torch-async", [])
    (benchmark,) = suite.get_benchmarks()
    assert benchmark.get_name() == "parallel: on all together"
    first, second = benchmark.get_runs()
    assert first.values == pytest.approx((1.0, 1.001, 0.999))
    assert second.warmups == ((1, 2.2),)


def test_devices_that_keep_to_no_core_have_suites_too() -> None:
    one = on_other_backend(measured(TORCH, (1.0,)), cores=[])
    assert "device_cores" not in suites(comparison(one))["torch-async"].get_benchmarks()[0].get_metadata()


def test_repeats_in_one_timing_are_pyperf_s_loops() -> None:
    found = result(TORCH, {"on all together": 1e-5})
    repeated = replace(found, cases=(replace(found.cases[0], repeats=200),))
    saved = comparison(replace(measured(TORCH, (1.0,)), results=(repeated,))).as_json()
    (run,) = suites(Comparison.from_json(saved))["torch-async"].get_benchmarks()[0].get_runs()
    assert (run.get_loops(), run.warmups) == (200, ((200, 2e-5),))
