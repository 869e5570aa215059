"""Which cells could be compared, and whether the results could be written."""

from pathlib import Path

import pytest

from parallel_core.doctor.comparison import examine_comparing
from parallel_core.doctor.frameworks import Attempt
from tests.parallel_core.doctor.findings import MXNET, TORCH


@pytest.mark.parametrize(
    ("attempts", "state", "expected_command"),
    [
        ([MXNET, TORCH], "fine", None),
        ([TORCH], "absent", "parallel-core compare --backends torch"),
        ([Attempt("mxnet", (), ())], "absent", None),
    ],
)
def test_what_could_be_compared(
    attempts: list[Attempt], state: str, expected_command: str | None, tmp_path: Path
) -> None:
    cells, results = examine_comparing(attempts, tmp_path).findings
    assert cells.state == state
    assert expected_command == (cells.diagnosis.command if cells.diagnosis else None)
    assert results.state == "fine"
    assert examine_comparing(attempts, Path("/proc/nothing")).findings[1].state == "doubtful"
