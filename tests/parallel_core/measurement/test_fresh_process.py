"""An experiment in a process of its own gives its result, or its reason."""

import pytest

from parallel_core import MeasurementError, RequestError
from parallel_core.measurement import fresh_process
from parallel_core.measurement.fresh_process import measure_elsewhere

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


def test_a_process_that_takes_too_long_is_a_failed_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_process, "MAX_RUN_SECONDS", 0.05)
    with pytest.raises(MeasurementError, match=r"parallel in a process of its own: gave no result within 0\.05 s"):
        measure_elsewhere("parallel", SMALL)
