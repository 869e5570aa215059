"""An experiment in a process of its own gives its result, or its reason."""

import math
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from parallel_core import MeasurementError, RequestError
from parallel_core.command_line.run import measure
from parallel_core.experiments import Experiment
from parallel_core.measurement.fresh_process import measure_elsewhere, measured_in, measuring_command
from parallel_core.measurement.result import Result
from tests.parallel_core.comparison import made_up

SMALL: dict[str, str | int] = {"backend": "numpy", "devices": 3, "size": 16, "rounds": 1}


def test_its_result_comes_back_and_an_option_may_be_given_never() -> None:
    result = measure_elsewhere("parallel", {**SMALL, "variant": ()})
    assert (result.experiment, result.backend["name"], result.parameters["size"]) == ("parallel", "numpy", 16)
    assert (result.backend["devices"], result.backend["variants"]) == (["cpu:1", "cpu:2", "cpu:3"], [])


def test_a_refusal_is_passed_on_and_an_option_may_be_given_twice() -> None:
    with pytest.raises(RequestError, match=r"numpy queues .* --variant bulk-on --variant copy-on-own-queue$"):
        measure_elsewhere("parallel", {**SMALL, "variant": ("bulk-on", "copy-on-own-queue")})


@pytest.mark.parametrize(
    ("options", "given", "seconds"),
    [({}, None, 300), ({"budget": 15.0}, None, 300), ({"budget": 600.0}, None, 3000), ({}, 0.05, r"0\.05")],
)
def test_a_process_may_take_several_times_its_budget(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, float], given: float | None, seconds: float | str
) -> None:
    def late(command: list[str], timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(MeasurementError, match=rf"parallel in a separate process: gave no result within {seconds} s"):
        measure_elsewhere("parallel", options, given)


@pytest.mark.parametrize(("second_fails", "sizes"), [(False, [16, 8]), (True, [16])])
def test_runs_go_on_after_an_invalid_result_and_not_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, second_fails: bool, sizes: list[int]
) -> None:
    real = Experiment.run

    def run(*arguments: Any, **options: Any) -> Result:
        result = real(*arguments, **options)
        if second_fails and result.parameters["size"] == 8:
            raise MeasurementError("no luck")
        return replace(result, problems=("wrong",))

    monkeypatch.setattr(Experiment, "run", run)
    *_, first, second = measuring_command("python", [("parallel", SMALL), ("parallel", {**SMALL, "size": 8})])
    done = CliRunner().invoke(measure, [first, second])
    # A library writes to the same descriptor, and its last line need not have ended.
    gave = list(measured_in(f"onednn_verbose,info\nonednn_verbose,exec{done.stdout}"))
    assert [one.result.parameters["size"] for one in gave] == sizes
    assert all(one.result.problems and one.seconds > 0 for one in gave)
    assert isinstance(done.exception, MeasurementError)
    assert str(done.exception).endswith("no luck" if second_fails else "an invalid result: wrong")


def test_a_number_that_json_does_not_have_is_read_as_none() -> None:
    made = made_up.result(made_up.parallel("torch"), {"on all together": 1.0})
    written = replace(made, metrics={"speedup": math.nan, "other": 2.0}, series={"loss": (1.0, math.inf)})
    read = Result.from_json(written.as_json())
    assert math.isnan(read.metrics["speedup"])
    assert (read.metrics["other"], read.series["loss"][0], math.isnan(read.series["loss"][1])) == (2.0, 1.0, True)
