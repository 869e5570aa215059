"""The GPUs that a framework lists, once it is imported.

It may be unable to compute on them: see `gpu_probe`.
"""

import warnings
from dataclasses import dataclass

from backends.installation.known_failures import Diagnosis, InstallationError, diagnose

__all__ = ["Gpu", "Gpus", "InstallationFailure", "failure_of", "list_gpus"]

NO_GPU = ("Found no NVIDIA driver", "no CUDA-capable device is detected", "No CUDA GPUs are available")
"""Messages of PyTorch's CUDA builds on a machine without a GPU, which are no failure."""


@dataclass(frozen=True)
class InstallationFailure:
    """The message of a framework that failed, in one line, and its diagnosis if the failure is known."""

    reason: str
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU as a framework lists it; None for what the framework does not tell.

    `peers` are the GPUs whose memory it can reach without the host.
    """

    index: int
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    peers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a framework. `cuda` is what it was built for, empty for a CPU build.

    `failure` is why it can use none; `page_locked` is why host memory cannot be page-locked, None if it can or nobody
    tried.
    """

    cuda: str = ""
    devices: tuple[Gpu, ...] = ()
    failure: InstallationFailure | None = None
    page_locked: InstallationFailure | None = None


def failure_of(framework: str, error: BaseException) -> InstallationFailure:
    """Put an error into one line, with its diagnosis if it is known."""
    if isinstance(error, InstallationError):
        return InstallationFailure(error.diagnosis.cause, error.diagnosis)
    text = f"{type(error).__name__}: {error}"
    return InstallationFailure(" ".join(text.split()), diagnose(framework, text))


def list_gpus(framework: str) -> Gpus:
    """List the GPUs of MXNet or PyTorch, which must be imported; none of any other framework's."""
    return {"torch": _of_torch, "mxnet": _of_mxnet}.get(framework, Gpus)()


def _of_torch() -> Gpus:
    import torch

    if torch.version.cuda is None:
        return Gpus()
    built_for = f"CUDA {torch.version.cuda}"
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
    text = " ".join(" ".join(str(warning.message).split()) for warning in messages)
    if not usable:
        silent = not text or any(phrase in text for phrase in NO_GPU)
        return Gpus(built_for, failure=None if silent else InstallationFailure(text, diagnose("torch", text)))
    devices = tuple(_torch_gpu(index) for index in range(torch.cuda.device_count()))
    try:
        torch.empty(1024, pin_memory=True)
    except RuntimeError as error:
        return Gpus(built_for, devices, page_locked=failure_of("torch", error))
    return Gpus(built_for, devices)


def _torch_gpu(index: int) -> Gpu:
    import torch

    it = torch.cuda.get_device_properties(index)
    others = (other for other in range(torch.cuda.device_count()) if other != index)
    peers = tuple(other for other in others if torch.cuda.can_device_access_peer(index, other))
    return Gpu(index, it.name, it.total_memory, f"{it.major}.{it.minor}", peers)


def _of_mxnet() -> Gpus:
    import mxnet as mx

    if not mx.runtime.Features().is_enabled("CUDA"):
        return Gpus()
    try:
        count: int = mx.context.num_gpus()
    except Exception as error:
        return Gpus("CUDA", failure=failure_of("mxnet", error))
    return Gpus("CUDA", tuple(Gpu(index, None, _memory_of_mxnet(index), None) for index in range(count)))


def _memory_of_mxnet(index: int) -> int | None:
    import mxnet as mx

    try:
        return int(mx.context.gpu_memory_info(index)[1])
    except mx.MXNetError:
        return None
