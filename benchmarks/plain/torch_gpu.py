"""Plain PyTorch on a GPU: what bounds the copies, products and streams that `benchmarks.gpu_check` measures.

On a CPU the same functions run, without streams and page-locked memory.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

Precision = Literal["float32", "TF32", "bfloat16"]


def version() -> str:
    """Return PyTorch's version."""
    return str(torch.__version__)


def has_gpu() -> bool:
    """Return whether PyTorch can use a GPU."""
    return torch.cuda.is_available()


def describe_gpu() -> dict[str, Any]:
    """Return name, memory in bytes, compute capability, multiprocessors, driver, CUDA and cuDNN."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "gpus": torch.cuda.device_count(),
        "device_memory_bytes": properties.total_memory,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def threads(kind: str) -> int:
    """Return how many threads the GPU holds at once; on a CPU that of PyTorch."""
    if kind != "gpu":
        return torch.get_num_threads()
    properties = torch.cuda.get_device_properties(0)
    return int(properties.multi_processor_count * properties.max_threads_per_multi_processor)


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (subprocess.SubprocessError, OSError) as error:
        return f"unknown (nvidia-smi: {type(error).__name__})"
    return next(iter(output.split()), "unknown")


def synchronize() -> None:
    """Wait for all streams."""
    if has_gpu():
        torch.cuda.synchronize()


def matrix(size: int, kind: str, precision: Precision = "float32") -> Tensor:
    """Make a size × size matrix of random numbers: products of zeros draw less power, and run faster."""
    made = torch.randn(size, size, device="cuda:0" if kind == "gpu" else "cpu")
    return made.bfloat16() if precision == "bfloat16" else made


@contextmanager
def on_precision(precision: Precision) -> Iterator[None]:
    """Let products of float32 round their factors to TF32 meanwhile, or not."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "TF32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def multiply(x: Tensor) -> None:
    """Multiply a matrix with itself."""
    torch.mm(x, x)


def streams(kind: str) -> list[Any]:
    """Make two streams; on a CPU, which has none, nothing in their place."""
    return [torch.cuda.Stream() if kind == "gpu" else None for _ in range(2)]


def products_on(x: Tensor, chosen: Sequence[Any], count: int) -> None:
    """Multiply a matrix with itself `count` times on every stream, in turn."""
    for _ in range(count):
        for stream in chosen:
            with torch.cuda.stream(stream):
                torch.mm(x, x)


def host_buffer(count: int, kind: str) -> tuple[Tensor, Tensor]:
    """Make `count` bytes in page-locked memory of the host, and as many on the device."""
    host = torch.zeros(count, dtype=torch.uint8, pin_memory=kind == "gpu")
    return host, torch.zeros(count, dtype=torch.uint8, device="cuda:0" if kind == "gpu" else "cpu")


def copy(source: Tensor, destination: Tensor) -> None:
    """Copy, without waiting for it if the memory allows."""
    destination.copy_(source, non_blocking=True)
