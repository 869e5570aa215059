"""What is saved: pyperf's suites whatever was measured, and files that cannot be trusted."""

import json
from dataclasses import replace
from typing import Any

import pytest

from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.pyperf_export import suites
from tests.parallel_core.comparison.made_up import comparison, failed, measured, parallel, result

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
    found = result(TORCH, {"on all together": 1.0})
    on_gpu = replace(found, backend={**found.backend, "cores": []})
    one = replace(measured(TORCH, (1.0,)), results=(on_gpu,))
    assert "device_cores" not in suites(comparison(one))["torch-async"].get_benchmarks()[0].get_metadata()


def test_repeats_in_one_timing_are_pyperf_s_loops() -> None:
    found = result(TORCH, {"on all together": 1e-5})
    repeated = replace(found, cases=(replace(found.cases[0], repeats=200),))
    saved = comparison(replace(measured(TORCH, (1.0,)), results=(repeated,))).as_json()
    (run,) = suites(Comparison.from_json(saved))["torch-async"].get_benchmarks()[0].get_runs()
    assert (run.get_loops(), run.warmups) == (200, ((200, 2e-5),))


def broken(change: Any) -> Any:
    read = comparison(measured(TORCH, (1.0, 1.1))).as_json()
    change(read["cells"][0]["results"][0])
    return json.loads(json.dumps(read))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["cases"][0].update(seconds=[]),
        lambda found: found["cases"][0].update(seconds=[0.0]),
        lambda found: found["cases"][0].update(seconds=[None]),
        lambda found: found["cases"][0].update(dispatch_seconds=[-1.0]),
        lambda found: found["cases"][0].update(repeats=0),
        lambda found: found.update(metrics=[]),
        lambda found: found.update(cases=None),
        lambda found: found.update(schema=2),
        lambda found: found["backend"].pop("devices"),
        lambda found: found["environment"].pop("python"),
        lambda found: found.pop("parameters"),
    ],
)
def test_a_result_that_cannot_be_is_refused(change: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        Comparison.from_json(broken(change))


def test_parts_that_are_no_cases_are_passed_over() -> None:
    read = broken(lambda found: found["cases"][0].update(parts=["nothing"]))
    assert Comparison.from_json(read).cells[0].valid
