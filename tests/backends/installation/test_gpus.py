"""GPUs as a framework lists them: stand-ins for frameworks, since there is no GPU here."""

import sys
import warnings
from types import SimpleNamespace

import pytest

from backends.installation.frameworks import list_gpus
from backends.installation.gpus import Gpu, Gpus

TOO_OLD = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."


def fake_torch(
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    *,
    cuda: str | None = "12.6",
    warning: str = "",
    lockable: bool = True,
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


def test_gpus_are_listed_with_their_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, 3)
    gpus = list_gpus("torch")
    assert gpus.cuda == "CUDA 12.6"
    assert gpus.devices[0] == Gpu(0, "NVIDIA A100", 40 * 2**30, "8.0", peers=(1,))
    assert [gpu.peers for gpu in gpus.devices] == [(1,), (0,), ()]


def test_a_driver_that_is_too_old_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, 0, warning=TOO_OLD)
    failure = list_gpus("torch").failure
    assert failure is not None
    assert failure.diagnosis is not None
    assert failure.diagnosis.command.endswith("/whl/cu118")


@pytest.mark.parametrize("warning", ["", "CUDA initialization: Found no NVIDIA driver on your system."])
def test_no_gpu_is_no_failure(monkeypatch: pytest.MonkeyPatch, warning: str) -> None:
    fake_torch(monkeypatch, 0, warning=warning)
    assert list_gpus("torch") == Gpus("CUDA 12.6")


def test_a_cpu_build_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, 1, cuda=None)
    assert list_gpus("torch") == Gpus()


def test_memory_that_cannot_be_page_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, 1, lockable=False)
    failure = list_gpus("torch").page_locked
    assert failure is not None
    assert "OS call failed" in failure.reason


@pytest.mark.parametrize(("cuda", "devices"), [(False, ()), (True, (Gpu(0, None, 2**30, None),))])
def test_mxnet_s_gpus(monkeypatch: pytest.MonkeyPatch, cuda: bool, devices: tuple[Gpu, ...]) -> None:
    module = SimpleNamespace(
        runtime=SimpleNamespace(Features=lambda: SimpleNamespace(is_enabled=lambda name: cuda)),
        context=SimpleNamespace(num_gpus=lambda: 1, gpu_memory_info=lambda index: (1, 2**30)),
        MXNetError=RuntimeError,
    )
    monkeypatch.setitem(sys.modules, "mxnet", module)
    assert list_gpus("mxnet").devices == devices
