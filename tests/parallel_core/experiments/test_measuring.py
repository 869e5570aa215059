"""What is timed in turn is a case of once, and what is wrong or cannot be makes a result invalid."""

import math

import numpy as np
import pytest

import backends
from parallel_core.experiments import measuring
from parallel_core.experiments.measuring import largest_error, result_of, time_in_turn, with_parts
from parallel_core.measurement.result import Case, Result


def test_times_are_of_one_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measure", lambda backend, work: (30.0, 60.0))
    cases = time_in_turn(backends.load("numpy", 1), {"six": list, "one": list}, rounds=2, repeats={"six": 6})
    assert (cases["six"].dispatch_seconds, cases["six"].seconds, cases["six"].repeats) == ((5.0, 5.0), (10.0, 10.0), 6)
    assert (cases["one"].seconds, cases["one"].repeats) == ((60.0, 60.0), 1)


def test_a_nan_behind_right_values_is_the_largest_error() -> None:
    right = np.eye(2)
    assert math.isnan(largest_error([right, np.full((2, 2), np.nan), right], [right] * 3))
    assert largest_error([np.ones(3)], [np.ones(2)]) == math.inf


def result(*cases: Case, error: float = 0.0) -> Result:
    return result_of(
        "any",
        backends.load("numpy", 1),
        parameters={},
        cases=cases,
        metrics={},
        explanation="It was pretended.",
        error=error,
        compared="products",
    )


def test_a_result_says_what_computed_and_how_fast_at_its_size() -> None:
    taken = result_of(
        "any",
        backends.load("numpy", 1),
        parameters={"size": 320},
        cases=(),
        metrics={},
        explanation="It was pretended.",
        error=0.0,
        compared="products",
    )
    read = Result.from_json(taken.as_json()).backend
    assert read["product"]["size"] == 320
    assert read["product"]["gflop_per_s"] > 0
    (library,) = read["kernels"]
    assert (library["library"], library["threads"]) == ("OpenBLAS", read["threads_per_device"])
    assert set(library) == {"library", "version", "instruction_set", "threads"}


def test_a_result_is_invalid_if_a_check_fails_or_a_whole_is_faster_than_its_part() -> None:
    part, slow, fast = (Case(name, (taken,), (taken,)) for name, taken in (("part", 2.0), ("slow", 3.0), ("fast", 1.0)))
    assert result(part, with_parts(slow, [part])).problems == ()
    (impossible,) = result(part, with_parts(fast, [part])).problems
    assert "'fast' took 1 s, less than its part 'part' alone" in impossible
    assert result(error=2e-4).problems == ("products differ from NumPy's by 2.0e-04 of the largest element",)
    assert len(result(error=math.nan).problems) == 1
