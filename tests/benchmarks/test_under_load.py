"""What is said of runs beside spinning processes: how many repetitions keep their meaning."""

from typing import Any

from benchmarks.harness.runs import spinning
from benchmarks.trust.under_load import findings_of


def run(**counts: dict[str, int]) -> dict[str, Any]:
    """Return what a run of `parallel` said: how often each code was counted."""
    return {"experiment": "parallel", "backend": "torch", "engine": "async", "counts": counts}


def test_repetitions_that_mean_something_else_are_not_counted_as_kept() -> None:
    quiet = run(beside={"together": 9, "in-part": 1})
    loaded = run(beside={"together": 195, "in-part": 5})
    of_experiment, of_all = findings_of({"0": [quiet], "2": [loaded]})
    assert of_experiment.name == "parallel beside 2 spinning: of 200 repetitions"
    assert of_experiment.interval.estimate == 97.5
    assert of_all.interval == of_experiment.interval


def test_what_a_run_lacks_is_left_out() -> None:
    failed = {**run(), "failed": "no such option"}
    del failed["counts"]
    counted = run(beside={"together": 10})
    without_counts = run()
    for quiet, loaded in ((counted, without_counts), (counted, failed), (failed, counted)):
        assert [*findings_of({"0": [quiet], "1": [loaded]})] == []


def test_processes_that_spin_end_with_the_runs_beside_them() -> None:
    with spinning(2) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert all(process.poll() is not None for process in processes)
