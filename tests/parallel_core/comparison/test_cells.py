"""A comparison survives its file, and a file that cannot be trusted is refused."""

import json
from typing import Any

import pytest

from parallel_core.comparison.cells import CellResults, Comparison
from tests.parallel_core.comparison.made_up import comparison, failed, measured, parallel, result

TORCH = parallel("torch")


def test_a_comparison_survives_its_file() -> None:
    saved = comparison(measured(parallel("mxnet"), (1.0, 1.1)), failed(TORCH), CellResults(parallel("numpy")))
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
        lambda found: found["cases"][0].update(repeats=0),
        lambda found: found.update(metrics=[]),
        lambda found: found.update(cases=None),
        lambda found: found.update(schema=3),
        lambda found: found["backend"].pop("devices"),
        lambda found: found["environment"].pop("python"),
        lambda found: found.pop("parameters"),
    ],
)
def test_a_result_that_cannot_be_is_refused(change: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        Comparison.from_json(broken(change))


def test_parts_that_are_no_cases_are_passed_over() -> None:
    read = broken(lambda found: found["cases"][0].update(parts=["nothing"]))
    assert Comparison.from_json(read).cells[0].valid


def test_what_a_result_means_and_where_its_sizes_are_from_is_read_again() -> None:
    cell = parallel("torch")
    made = result(cell, {"any": 1.0}, bands={"parallel_speedup": "parallel", "other": None}, sizes="kept")
    read = Comparison.from_json(json.loads(json.dumps(comparison(CellResults(cell, (made,))).as_json())))
    (again,) = read.cells[0].results
    assert (again.bands, again.sizes) == (made.bands, made.sizes)
