"""A comparison survives its file, and a file that cannot be trusted is refused."""

import json
from typing import Any

import pytest

from parallel_core.comparison.cells import CellResults, Comparison
from tests.parallel_core.comparison.made_up import changed, comparison, failed, measured, parallel
from tests.parallel_core.comparison.test_account import PARTS, made_of

TORCH = parallel("torch")


def test_a_comparison_survives_its_file() -> None:
    bands = {"parallel_speedup": "parallel", "other": None}
    whole = changed(made_of(parallel("mxnet"), 1.0, PARTS), bands=bands, sizes="kept")
    saved = comparison(whole, failed(TORCH), CellResults(parallel("numpy")))
    assert Comparison.from_json(json.loads(json.dumps(saved.as_json()))) == saved


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
        lambda found: found["cases"][0].update(dispatch_seconds=[]),
        lambda found: found["cases"][0].update(operations_seconds=[None]),
        lambda found: found["cases"][0].update(repeats=0),
        lambda found: found["cases"][0].update(share=0.0),
        lambda found: found["cases"][0].update(warmup_seconds=[-1.0]),
        lambda found: found.update(metrics=[]),
        lambda found: found["metrics"].update(parallel_speedup=10**30),
        lambda found: found.update(tasks=[{"name": "x", "device": "cpu:1", "kind": "compute", "after": [-1]}]),
        lambda found: found.update(cases=None),
        lambda found: found.update(schema=3),
        lambda found: found["backend"].pop("devices"),
        lambda found: found["backend"].update(devices=[]),
        lambda found: found["environment"].pop("python"),
        lambda found: found.pop("environment"),
        lambda found: found.pop("parameters"),
    ],
)
def test_a_result_that_cannot_be_is_refused(change: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        Comparison.from_json(broken(change))


def test_parts_that_are_no_cases_are_passed_over() -> None:
    read = broken(lambda found: found["cases"][0].update(parts=["nothing"]))
    assert Comparison.from_json(read).cells[0].valid
