"""What a GPU, its driver and the libraries are."""

from typing import Any

from benchmarks.gpu.part import Found, Place
from parallel_core.system.machine import describe_machine

__all__ = ["describe"]


def describe(place: Place) -> Found:
    """Name the device and all versions; a problem where there is no GPU."""
    from benchmarks.plain import torch_gpu

    found: dict[str, Any] = {**describe_machine(), "torch": torch_gpu.version()}
    if place.kind == "cpu":
        return Found(parameters={**found, "device": "CPU devices"})
    if not torch_gpu.has_gpu():
        return Found(problems=(f"there is no GPU to check: torch {torch_gpu.version()} finds none",))
    return Found(parameters={**found, **torch_gpu.describe_gpu()})
