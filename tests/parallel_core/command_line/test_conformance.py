"""`parallel-core conformance` as a user meets it: what is shown, and the exit status."""

import pytest

from tests.conftest import RunProgram


@pytest.mark.parametrize("devices", ["2", "cpu:3,cpu:1"])
def test_numpy_is_equal_to_itself(program: RunProgram, devices: str) -> None:
    done = program("conformance", "--backend", "numpy", "--programs", "5", "--devices", devices)
    assert (done.returncode, done.stdout.startswith("numpy: 5 programs, ")) == (0, True)
    assert done.stdout.endswith("all equal to NumPy's\n")
