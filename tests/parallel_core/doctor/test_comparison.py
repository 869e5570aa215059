"""Which cells could be compared, and whether the results could be written."""

from pathlib import Path

import pytest

from backends.installation.probe import Probe
from parallel_core.doctor.comparison import examine_comparing
from parallel_core.doctor.frameworks import Attempt
from tests.parallel_core.doctor.findings import MXNET, TORCH

OTHER = Attempt("own", (), (Probe("own", "sync", "1.0"),))
NUMPY = Attempt("numpy", (), (Probe("numpy", "sync", "2.0"),))


@pytest.mark.parametrize(
    ("attempts", "state", "expected_command"),
    [
        ([MXNET, TORCH], "fine", None),
        ([TORCH], "absent", "parallel-core compare --backends torch"),
        ([OTHER, NUMPY], "absent", "parallel-core compare --backends own"),
        ([OTHER, TORCH, NUMPY], "absent", "parallel-core compare --backends torch"),
        ([Attempt("mxnet", (), ()), NUMPY], "absent", None),
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
