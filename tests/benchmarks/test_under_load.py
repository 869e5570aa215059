"""What is said of runs beside spinning processes: how many repetitions keep their meaning, and
which intervals miss the quiet figure.
"""

from typing import Any

from benchmarks.experiments.under_load import spinning, table


def run(codes: dict[str, int], interval: list[float | None], **changes: Any) -> dict[str, Any]:
    """Return what a run of `parallel` said, with how often each code was counted."""
    return {
        "experiment": "parallel",
        "backend": "torch",
        "engine": "async",
        "status": 0,
        "seconds": 20.0,
        "counts": {"beside": codes},
        "metric": "speedup",
        "interval": interval,
        **changes,
    }


def rows(runs: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """Return the cells of the table's rows, without the three that name the run.

    Runs stand under the number of processes that spun beside them.
    """
    table_rows = table(runs).splitlines()[2:]
    cells_of_rows = []
    for line in table_rows:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        cells_of_rows.append(cells[3:])
    return cells_of_rows


def test_repetitions_that_mean_something_else_are_not_counted_as_kept() -> None:
    quiet = run({"together": 9, "in-part": 1}, [1.9, 1.8, 2.0])
    loaded = run({"together": 195, "in-part": 5}, [1.5, 1.2, 1.7], seconds=40.0, status=3)
    count_row, metric_row, run_row = rows({"0": [quiet], "2": [loaded]})
    assert count_row == ["beside", "together", "195 of 200"]
    assert metric_row == ["speedup", "1.9 (1.8 to 2)", "1.5 (1.2 to 1.7), missed"]
    assert run_row == ["the run", "20 s, status 0", "40 s, status 3"]


def test_what_a_loaded_run_lacks_is_left_open() -> None:
    quiet = run({"together": 10}, [1.9, 1.8, 2.0])
    failed = run({}, [None, None, None], counts={})
    count_row, metric_row, _ = rows({"0": [quiet], "1": [failed], "2": []})
    assert count_row == ["beside", "together", "–", "–"]
    assert metric_row[2:] == ["unknown", "–"]


def test_processes_that_spin_end_with_the_runs_beside_them() -> None:
    with spinning(2) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert all(process.poll() is not None for process in processes)


def test_a_quiet_run_that_failed_is_named() -> None:
    failed = {**run({}, [None, None, None]), "failed": "no such option"}
    del failed["metric"]
    assert rows({"0": [failed], "2": []}) == [["failed", "no such option", "–"]]
