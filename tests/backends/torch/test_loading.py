"""Which class schedules the work follows from the engine and the kinds of devices; when CUDA reads
its settings.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

import backends
from backends import Backend, BackendError

MadeUp = Callable[[int], Any]
"""Gives PyTorch some synthetic GPUs, in a process that has not started CUDA."""


@pytest.mark.parametrize(
    ("names", "class_if_async"),
    [
        ("cpu:1,cpu:2", "WorkerThreadsTorch"),
        ("gpu:0", "CudaStreamsTorch"),
        ("gpu:0/0,gpu:0/1", "CudaStreamsTorch"),
        ("cpu:1,gpu:0", "CudaStreamsTorch"),
    ],
)
def test_the_class_is_chosen_by_engine_and_devices(
    on_made_up_gpus: Callable[..., tuple[Backend, Any]],
    engine: str,
    names: str,
    class_if_async: str,
) -> None:
    backend, _ = on_made_up_gpus(names)
    expected_class = "EagerTorch" if engine == "sync" else class_if_async
    assert type(backend).__name__ == expected_class
    assert backend.engine == engine
    has_streams = "/" in names
    assert backend.scheduler.endswith("are streams on one GPU, and share it") == has_streams


@pytest.mark.parametrize(("engine_of_test", "value"), [("sync", "1"), ("async", "0")])
def test_cuda_finds_its_settings_when_gpus_are_counted(
    made_up_torch: MadeUp, engine_of_test: str, value: str
) -> None:
    torch = made_up_torch(1)
    backend = backends.load("torch", "gpu:0", "auto", engine_of_test, 1)
    assert torch.cuda.counted_with == value
    assert backend.settings["CUDA_LAUNCH_BLOCKING"] == value
    assert os.environ["CUDA_LAUNCH_BLOCKING"] == value


def test_a_later_load_does_not_change_the_settings_of_an_earlier_one(made_up_torch: MadeUp) -> None:
    made_up_torch(1)
    backends.load("torch", "gpu:0", "auto", "sync", 1)
    with pytest.raises(
        BackendError, match="CUDA was started with CUDA_LAUNCH_BLOCKING=1, and this engine needs 0"
    ):
        backends.load("torch", "gpu:0", "auto", "async", 1)
    assert os.environ["CUDA_LAUNCH_BLOCKING"] == "1"
    backends.load("torch", "gpu:0", "auto", "sync", 1)


@pytest.mark.parametrize(
    ("gpus", "devices", "kind", "is_counted"),
    [
        (1, 1, "cpu", False),
        (1, "cpu:1", "auto", False),
        (1, "cpu:1", "cpu", False),
        # Whether there is a GPU has to be found out.
        (0, 1, "auto", True),
    ],
)
def test_cuda_is_left_alone_for_cpus(
    made_up_torch: MadeUp,
    engine: str,
    gpus: int,
    devices: int | str,
    kind: str,
    is_counted: bool,
) -> None:
    torch = made_up_torch(gpus)
    backend = backends.load("torch", devices, kind, engine, 1)
    assert (torch.cuda.counted_with != "not counted") == is_counted
    assert "CUDA_LAUNCH_BLOCKING" not in os.environ
    assert not backend.settings


def test_a_cuda_that_does_not_start_is_said_in_a_line(
    made_up_torch: MadeUp, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError(
            "CUDA error: all CUDA-capable devices are busy or unavailable\nand how to debug that"
        )

    torch = made_up_torch(1)
    monkeypatch.setattr(torch.cuda, "init", fail)
    with pytest.raises(
        BackendError, match=r"^torch cannot start CUDA \(.* unavailable\): use --device-kind cpu$"
    ):
        backends.load("torch", "gpu:0", "auto", engine, 1)
