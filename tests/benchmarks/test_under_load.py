"""What is said of runs beside spinning processes: how many repetitions keep their meaning, and
which intervals miss the quiet figure.
"""

from typing import Any

from benchmarks.experiments.under_load import spinning, table


def run(codes: dict[str, int], interval: list[float | None], **other: Any) -> dict[str, Any]:
    """Return what a run of `parallel` said."""
    return {
        "experiment": "parallel",
        "backend": "torch",
        "engine": "async",
        "status": 0,
        "seconds": 20.0,
        "counts": {"beside": codes},
        "metric": "speedup",
        "interval": interval,
        **other,
    }


def rows(runs: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """Return the cells of the table's rows, behind those that name the run."""
    lines = table(runs).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")][3:] for line in lines]


def test_repetitions_that_mean_something_else_are_not_counted_as_kept() -> None:
    quiet = run({"together": 9, "in-part": 1}, [1.9, 1.8, 2.0])
    loaded = run({"together": 195, "in-part": 5}, [1.5, 1.2, 1.7], seconds=40.0, status=3)
    count, clock, whole = rows({"0": [quiet], "2": [loaded]})
    assert count == ["beside", "together", "195 of 200"]
    assert clock == ["speedup", "1.9 (1.8 to 2)", "1.5 (1.2 to 1.7), missed"]
    assert whole == ["the run", "20 s, status 0", "40 s, status 3"]


def test_what_a_loaded_run_lacks_is_left_open() -> None:
    quiet = run({"together": 10}, [1.9, 1.8, 2.0])
    failed = run({}, [None, None, None], counts={})
    count, clock, _ = rows({"0": [quiet], "1": [failed], "2": []})
    assert count == ["beside", "together", "–", "–"]
    assert clock[2:] == ["unknown", "–"]


def test_processes_that_spin_end_with_the_runs_beside_them() -> None:
    with spinning(2) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert None not in [process.poll() for process in processes]
