"""Which class schedules the work follows from the engine and the kinds of devices."""

from collections.abc import Callable
from typing import Any

import pytest

from backends import Backend
from backends.torch.loading import class_for


@pytest.mark.parametrize(
    ("names", "asynchronous"),
    [
        ("cpu:1,cpu:2", "WorkerThreadsTorch"),
        ("gpu:0", "CudaThreadsTorch"),
        ("gpu:0/0,gpu:0/1", "CudaThreadsTorch"),
        ("cpu:1,gpu:0", "CudaThreadsTorch"),
    ],
)
def test_the_class_is_chosen_by_engine_and_devices(
    on_made_up_gpus: Callable[..., tuple[Backend, Any]], engine: str, names: str, asynchronous: str
) -> None:
    backend, _ = on_made_up_gpus(names)
    assert type(backend).__name__ == ("EagerTorch" if engine == "sync" else asynchronous)
    assert backend.engine == engine
    assert type(backend) is class_for(backend.engine, {device.kind for device in backend.devices})
