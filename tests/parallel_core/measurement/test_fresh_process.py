"""An experiment in a process of its own gives its result, or its reason."""

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from parallel_core import MeasurementError, RequestError
from parallel_core.command_line.run import measure
from parallel_core.command_line.run import one_backend as command
from parallel_core.measurement.fresh_process import measure_elsewhere, measured_in, measuring_command
from parallel_core.measurement.result import Result

SMALL: dict[str, str | int] = {"backend": "numpy", "devices": 3, "size": 16, "rounds": 1}


def test_its_result_comes_back() -> None:
    result = measure_elsewhere("parallel", SMALL)
    assert (result.experiment, result.backend["name"]) == ("parallel", "numpy")
    assert result.backend["devices"] == ["cpu:1", "cpu:2", "cpu:3"]
    assert result.parameters["size"] == 16


def test_an_option_may_be_given_several_times_or_never() -> None:
    with pytest.raises(RequestError, match=r"numpy queues nothing.* --variant bulk-on --variant copy-on-own-queue$"):
        measure_elsewhere("parallel", {**SMALL, "variant": ("bulk-on", "copy-on-own-queue")})
    assert measure_elsewhere("parallel", {**SMALL, "variant": ()}).backend["variants"] == []


def test_a_refusal_is_passed_on() -> None:
    with pytest.raises(RequestError, match=r"^numpy is the synchronous reference"):
        measure_elsewhere("parallel", {**SMALL, "engine": "async"})


def test_a_process_that_takes_too_long_is_a_failed_measurement() -> None:
    with pytest.raises(MeasurementError, match=r"parallel in a process of its own: gave no result within 0\.05 s"):
        measure_elsewhere("parallel", SMALL, seconds=0.05)


@pytest.mark.parametrize(("second_fails", "sizes"), [(False, [16, 8]), (True, [16])])
def test_runs_go_on_after_an_invalid_result_and_not_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, second_fails: bool, sizes: list[int]
) -> None:
    real = command.run_with_resources

    def run(*arguments: Any) -> Result:
        result = real(*arguments)
        if second_fails and result.parameters["size"] == 8:
            raise MeasurementError("no luck")
        return replace(result, problems=("wrong",))

    monkeypatch.setattr(command, "run_with_resources", run)
    *_, first, second = measuring_command("python", [("parallel", SMALL), ("parallel", {**SMALL, "size": 8})])
    done = CliRunner().invoke(measure, [first, second])
    gave = list(measured_in(done.stdout))
    assert [one.result.parameters["size"] for one in gave] == sizes
    assert all(one.result.problems and one.seconds > 0 for one in gave)
    assert isinstance(done.exception, MeasurementError)
    assert str(done.exception).endswith("no luck" if second_fails else "an invalid result: wrong")
