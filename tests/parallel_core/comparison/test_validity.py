"""What speaks against a cell's times: pyperf's own warnings, and impossible times."""

import subprocess
import sys
from pathlib import Path

import pyperf
import pytest

from parallel_core.comparison.cells import CellResults
from parallel_core.comparison.validity import assess, impossible_cases, instabilities
from tests.parallel_core.comparison.made_up import TOGETHER, parallel, result


@pytest.mark.parametrize(
    "values",
    [
        (0.1, 0.1001, 0.0999, 0.1002),
        (0.1, 0.13, 0.1, 0.13),
        (0.1,) * 50 + (0.151,),
        (0.1,) * 50 + (0.049,),
        (0.0009, 0.0009, 0.0009001),
        (0.1,) * 5 + (0.2,),
    ],
)
def test_the_warnings_are_those_of_pyperf(values: tuple[float, ...], tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    run = pyperf.Run(values, metadata={"name": "case"}, collect_metadata=False)
    pyperf.BenchmarkSuite([pyperf.Benchmark([run])]).dump(str(path))
    output = subprocess.run(
        [sys.executable, "-m", "pyperf", "check", str(path)], capture_output=True, text=True, check=False
    ).stdout
    signs = ("standard deviation", "the minimum", "the maximum", "the shortest")
    assert [sign in " ".join(instabilities(values)) for sign in signs] == [sign in output for sign in signs]


def test_short_times_that_were_timed_together_are_long_enough() -> None:
    short = (1e-5, 1.01e-5)
    assert instabilities(short) == ("the shortest time is only 10.0 μs",)
    assert instabilities(short, [200 * seconds for seconds in short]) == ()


def together(seconds: float) -> CellResults:
    cell = parallel("torch")
    times = {"alone": 1.0, "other": 0.5, TOGETHER: seconds}
    return CellResults(
        cell,
        tuple(
            result(cell, {name: taken * drift for name, taken in times.items()})
            for drift in (1.0, 1.01, 0.99, 1.005, 0.995)
        ),
    )


@pytest.mark.parametrize(("seconds", "state"), [(1.02, "measured"), (0.97, "measured"), (0.8, "invalid")])
def test_a_whole_that_is_faster_than_its_slowest_part_is_invalid(seconds: float, state: str) -> None:
    assert assess(together(seconds))[0] == state
    assert bool(impossible_cases(together(seconds))) == (state == "invalid")
