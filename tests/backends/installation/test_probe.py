"""A GPU that a framework cannot compute on is found out in a process of its own."""

import signal

import pytest

from backends.installation import probe
from backends.installation.probe import reason_against, reason_of_failure

NO_KERNEL = (
    "mxnet at launch: MXNetError: Check failed: e == cudaSuccess: CUDA: no kernel image is available for execution"
)


@pytest.mark.parametrize(
    ("status", "errors", "reason"),
    [
        (0, "a warning\n", ""),
        (
            1,
            f"{NO_KERNEL}\nmany\nlines behind it",
            "its binary holds no code for this GPU: no kernel image is available",
        ),
        (1, "Traceback:\n  somewhere\nRuntimeError: no driver\n\n", "RuntimeError: no driver"),
        (-signal.SIGSEGV, NO_KERNEL, "the process died of SIGSEGV"),
        (3, "", "exit status 3"),
    ],
)
def test_why_a_probe_failed_is_said(status: int, errors: str, reason: str) -> None:
    assert reason_of_failure(status, errors) == reason


def test_a_probe_finds_no_gpu_where_there_is_none() -> None:
    # NumPy has none on any machine.
    assert reason_against("numpy", 0).endswith("numpy finds no GPUs, and so no gpu:0")


def test_a_probe_does_not_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_probing_gpu", True)
    assert reason_against("no such framework", 0) == ""


def test_a_probe_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "MAX_GPU_SECONDS", 0.01)
    assert "took more than" in reason_against("torch", 99)
