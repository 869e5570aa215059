"""An experiment in a process of its own gives its result, or its reason."""

import subprocess
import sys

import pytest

from parallel_core import MeasurementError, RequestError
from parallel_core.measurement.fresh_process import measure_elsewhere, measured_in, measuring_command

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


def test_runs_after_one_with_an_invalid_result_are_done_and_its_status_is_the_process_s() -> None:
    wrong = "from parallel_core.experiments.runner import conclusions; conclusions.LARGEST_ERROR = -1.0"
    script = f"{wrong}; from parallel_core.__main__ import main; main()"
    _, *arguments = measuring_command(sys.executable, [("parallel", SMALL), ("parallel", {**SMALL, "size": 8})])
    done = subprocess.run([sys.executable, "-c", script, *arguments[3:]], capture_output=True, text=True, check=False)
    gave = list(measured_in(done.stdout))
    assert [one.result.parameters["size"] for one in gave] == [16, 8]
    assert all(one.result.problems and one.seconds > 0 for one in gave)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
