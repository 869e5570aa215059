"""What is kept of a run of an exercise, whatever became of it."""

import json

import pytest

from benchmarks.experiments.exercises import DEADLINE, read_result
from parallel_core.errors import DISTURBED
from parallel_core.system.subprocesses import Outcome
from tests.parallel_core.comparison.made_up import parallel, result

TEXT = json.dumps(result(parallel("torch"), {"on all together": 1.0}, problems=("It cannot be.",)).as_json())


@pytest.mark.parametrize("status", [1, DISTURBED])
def test_a_result_with_problems_is_kept_with_them_and_without_raw_values(status: int) -> None:
    kept = read_result(Outcome(status, TEXT, "parallel-core: invalid", timed_out=False), TEXT, with_times=False)
    assert kept["problems"] == ["It cannot be."]
    assert (kept["cases"], "environment" in kept) == ([], False)


@pytest.mark.parametrize(
    ("status", "text", "timed_out", "reason"),
    [
        (2, "", False, "not installed"),
        (0, "{", False, "not installed"),
        (1, TEXT, True, f"gave no result within {DEADLINE:g} s and was killed"),
    ],
)
def test_a_run_without_a_result_is_kept_with_the_reason(status: int, text: str, timed_out: bool, reason: str) -> None:
    outcome = Outcome(status, text, "parallel-core: not installed", timed_out)
    assert read_result(outcome, text, with_times=False) == {"failed": reason}
