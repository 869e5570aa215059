"""GPUs as a framework lists them, by stand-ins for frameworks; whether one can compute there, by a process."""

import signal
import sys
import warnings
from types import SimpleNamespace

import pytest

from backends.installation import probe
from backends.installation.frameworks import Gpu, Gpus, installation_of
from backends.installation.probe import reason_against, reason_of_failure

TOO_OLD = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."


def fake_torch(
    monkeypatch: pytest.MonkeyPatch, count: int, *, cuda: str | None = "12.6", warning: str = "", lockable: bool = True
) -> None:
    """Put a torch in the real one's place that finds `count` GPUs, some reaching each other."""

    def is_available() -> bool:
        if warning:
            warnings.warn(warning, stacklevel=1)
        return count > 0

    def empty(_: int, pin_memory: bool) -> None:
        if pin_memory and not lockable:
            raise RuntimeError("CUDA error: OS call failed")

    properties = SimpleNamespace(name="NVIDIA A100", total_memory=40 * 2**30, major=8, minor=0)
    cuda_module = SimpleNamespace(
        is_available=is_available,
        device_count=lambda: count,
        get_device_properties=lambda index: properties,
        can_device_access_peer=lambda one, other: {one, other} == {0, 1},
    )
    module = SimpleNamespace(version=SimpleNamespace(cuda=cuda), cuda=cuda_module, empty=empty)
    monkeypatch.setitem(sys.modules, "torch", module)


def test_torch_s_gpus_are_listed_with_their_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, 3)
    gpus = installation_of("torch").gpus()
    assert (gpus.cuda, gpus.failure, gpus.page_locked) == ("CUDA 12.6", None, None)
    assert gpus.devices[0] == Gpu(0, "NVIDIA A100", 40 * 2**30, "8.0", peers=(1,))
    assert [gpu.peers for gpu in gpus.devices] == [(1,), (0,), ()]
    fake_torch(monkeypatch, 1, lockable=False)
    locked = installation_of("torch").gpus().page_locked
    assert locked is not None
    assert "OS call failed" in locked.cause
    # A CPU build is not asked.
    fake_torch(monkeypatch, 1, cuda=None)
    assert installation_of("torch").gpus() == Gpus()


@pytest.mark.parametrize(
    ("warning", "command"),
    [("", None), ("CUDA initialization: Found no NVIDIA driver on your system.", None), (TOO_OLD, "/whl/cu118")],
)
def test_no_gpu_is_no_failure_but_an_old_driver_is(
    monkeypatch: pytest.MonkeyPatch, warning: str, command: str | None
) -> None:
    fake_torch(monkeypatch, 0, warning=warning)
    gpus = installation_of("torch").gpus()
    assert (gpus.cuda, gpus.devices) == ("CUDA 12.6", ())
    assert (gpus.failure is None) if command is None else str(gpus.failure).endswith(command)


@pytest.mark.parametrize(("cuda", "devices"), [(False, ()), (True, (Gpu(0, None, 2**30, None),))])
def test_mxnet_s_gpus(monkeypatch: pytest.MonkeyPatch, cuda: bool, devices: tuple[Gpu, ...]) -> None:
    module = SimpleNamespace(
        runtime=SimpleNamespace(Features=lambda: SimpleNamespace(is_enabled=lambda name: cuda)),
        context=SimpleNamespace(num_gpus=lambda: 1, gpu_memory_info=lambda index: (1, 2**30)),
        MXNetError=RuntimeError,
    )
    monkeypatch.setitem(sys.modules, "mxnet", module)
    assert installation_of("mxnet").gpus().devices == devices


NO_KERNEL = "mxnet at launch: MXNetError: Check failed: e == cudaSuccess: CUDA: no kernel image is available for it"


@pytest.mark.parametrize(
    ("status", "errors", "reason"),
    [
        (0, "a warning\n", ""),
        (1, f"{NO_KERNEL}\nlines behind", "its binary holds no code for this GPU: no kernel image is available"),
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
