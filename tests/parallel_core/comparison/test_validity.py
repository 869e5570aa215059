"""What speaks against a cell's times: pyperf's own warnings, and impossible times."""

import re
from contextlib import suppress
from pathlib import Path

import pyperf
import pytest
from pyperf import __main__ as pyperf_program

from parallel_core.comparison.cells import CellResults
from parallel_core.comparison.validity import assess, impossible_cases, instabilities
from tests.parallel_core.comparison.made_up import TOGETHER, parallel, result

VALUES = {
    "stable": (0.1, 0.1001, 0.0999, 0.1002),
    "noisy": (0.1, 0.13, 0.1, 0.13),
    "with a long one": (0.1,) * 50 + (0.151,),
    "with a short one": (0.1,) * 50 + (0.049,),
    "all short": (0.0009, 0.0009, 0.0009001),
    "few, with a long one": (0.1,) * 5 + (0.2,),
}


def test_the_warnings_are_those_of_pyperf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "suite.json"
    runs = [pyperf.Run(own, metadata={"name": name}, collect_metadata=False) for name, own in VALUES.items()]
    pyperf.BenchmarkSuite([pyperf.Benchmark([run]) for run in runs]).dump(str(path))
    monkeypatch.setattr("sys.argv", ["pyperf", "check", str(path)])
    with suppress(SystemExit):
        pyperf_program.main()
    printed = capsys.readouterr().out
    # Of a stable one nothing is said.
    told = dict(re.findall(r"^([a-z, ]+)\n-+\n(.*?)(?=^[a-z, ]+\n-+\n|\Z)", printed, re.MULTILINE | re.DOTALL))
    assert told.keys() <= VALUES.keys()
    signs = ("standard deviation", "the minimum", "the maximum", "the shortest")
    for name, values in VALUES.items():
        found = " ".join(instabilities(values, values))
        assert [sign in found for sign in signs] == [sign in told.get(name, "") for sign in signs], name


def test_short_times_that_were_timed_together_are_long_enough() -> None:
    short = (1e-5, 1.01e-5)
    assert list(instabilities(short, short)) == ["the shortest time is only 10.0 μs"]
    assert not list(instabilities(short, [200 * seconds for seconds in short]))


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
    assert any(impossible_cases(together(seconds))) == (state == "invalid")
