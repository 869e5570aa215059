"""`parallel-core conformance` as a user meets it: what is shown, and the exit status."""

import subprocess
import sys

import pytest


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "parallel_core", "conformance", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_numpy_is_equal_to_itself() -> None:
    done = program("--backend", "numpy", "--programs", "5", "--devices", "2")
    assert done.returncode == 0
    assert done.stdout.startswith("numpy: 5 programs, ")
    assert done.stdout.endswith("all equal to NumPy's\n")


def test_devices_may_be_named() -> None:
    done = program("--backend", "numpy", "--programs", "3", "--devices", "cpu:3,cpu:1")
    assert done.returncode == 0
    assert done.stdout.startswith("numpy: 3 programs, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either --backend NAME or --all"),
        (("--backend", "numpy", "--all"), "either --backend NAME or --all"),
        (("--backend", "nmupy"), "unknown backend 'nmupy'"),
        (("--backend", "numpy", "--engine", "async"), "numpy is the synchronous reference"),
        (("--backend", "numpy", "--variant", "tf32"), "numpy queues nothing, and so has no variants"),
        (("--backend", "numpy", "--programs", "0"), "0 is not in the range"),
    ],
)
def test_a_bad_request_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = program(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
