"""A worker answers each request with a result, and its last error with a line and a status."""

import json
from dataclasses import replace
from typing import Any

import pytest

from parallel_core import MeasurementError
from parallel_core.experiments import Experiment
from parallel_core.measurement.fresh_process import measured_in
from parallel_core.measurement.request import Request
from parallel_core.measurement.result import Note, Result
from parallel_core.measurement.starter import NOTHING_MORE
from tests.parallel_core.run.asking import ended_with

SMALL = {"backend": "numpy", "devices": 3, "rounds": 1}


@pytest.mark.parametrize(("second_fails", "sizes"), [(False, [16, 8]), (True, [16])])
def test_it_goes_on_after_an_invalid_result_and_not_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    second_fails: bool,
    sizes: list[int],
) -> None:
    real = Experiment.run

    def run(*arguments: Any, **options: Any) -> Result:
        result = real(*arguments, **options)
        if second_fails and result.parameters["size"] == 8:
            raise MeasurementError("no luck")
        return replace(result, problems=(Note(None, "wrong"),))

    monkeypatch.setattr(Experiment, "run", run)
    lines = [Request.of("parallel", {**SMALL, "size": size}).as_line() for size in (16, 8)]
    status = ended_with([*lines, NOTHING_MORE], monkeypatch)
    printed, errors = capfd.readouterr()
    # A library writes to the same descriptor, and its last line need not have ended.
    results = list(measured_in(f"onednn_verbose,info\nonednn_verbose,exec{printed}"))
    assert [result.parameters["size"] for result in results] == sizes
    assert all(result.problems for result in results)
    assert (status, errors) == ((1, "parallel-core: no luck\n") if second_fails else (0, ""))


def test_what_is_no_request_is_a_bug_and_not_answered(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="work"):
        ended_with([json.dumps({"words": {}})], monkeypatch)
    assert capfd.readouterr().out == ""
