"""What a GPU, its driver and the libraries are."""

from typing import Any

from benchmarks.gpu.part import PartResult, Place
from parallel_core.system.machine import describe_machine

__all__ = ["describe"]


def describe(place: Place) -> PartResult:
    """Name the device and all versions; a problem if there is no GPU."""
    from benchmarks.plain import torch_gpu

    machine: dict[str, Any] = {**describe_machine(), "torch": torch_gpu.version()}
    if place.kind == "cpu":
        return PartResult(parameters={**machine, "device": "CPU devices"})
    if not torch_gpu.has_gpu():
        return PartResult(problems=(f"there is no GPU to check: torch {torch_gpu.version()} finds none",))
    return PartResult(parameters={**machine, **torch_gpu.describe_gpu()})
