"""Which GPUs a framework finds: asked of the framework itself, once it is imported.

That it finds one does not mean that it can compute there: `gpu_probe` tells.
"""

import warnings
from dataclasses import dataclass

from backends.installation.known_failures import Diagnosis, InstallationError, diagnose

__all__ = ["Gpu", "Gpus", "InstallationFailure", "failure_of", "list_gpus"]

NO_GPU = ("Found no NVIDIA driver", "no CUDA-capable device is detected", "No CUDA GPUs are available")
"""What PyTorch's CUDA builds say where there is no GPU, which is no fault of theirs."""


@dataclass(frozen=True)
class InstallationFailure:
    """What a framework said when it failed, in one line, and what that means where it is known."""

    reason: str
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU as a framework sees it; None for what the framework does not tell.

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

    `failure` is why it can use none; `page_locked` is why host memory cannot be page-locked, None where it can or
    nobody tried.
    """

    cuda: str = ""
    devices: tuple[Gpu, ...] = ()
    failure: InstallationFailure | None = None
    page_locked: InstallationFailure | None = None


def failure_of(framework: str, error: BaseException) -> InstallationFailure:
    """Put an error into one line, and explain it where it is known."""
    if isinstance(error, InstallationError):
        return InstallationFailure(error.diagnosis.cause, error.diagnosis)
    text = f"{type(error).__name__}: {error}"
    return InstallationFailure(" ".join(text.split()), diagnose(framework, text))


def list_gpus(framework: str) -> Gpus:
    """List the GPUs of MXNet or PyTorch, which must be imported; none of any other framework's."""
    if framework == "torch":
        return _of_torch()
    if framework == "mxnet":
        return _of_mxnet()
    return Gpus()


def _of_torch() -> Gpus:
    import torch

    if torch.version.cuda is None:
        return Gpus()
    built_for = f"CUDA {torch.version.cuda}"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
    text = " ".join(" ".join(str(warning.message).split()) for warning in said)
    if not usable:
        silent = not text or any(phrase in text for phrase in NO_GPU)
        return Gpus(built_for, failure=None if silent else InstallationFailure(text, diagnose("torch", text)))
    count = torch.cuda.device_count()
    found = []
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            Gpu(
                index,
                properties.name,
                properties.total_memory,
                f"{properties.major}.{properties.minor}",
                tuple(n for n in range(count) if n != index and torch.cuda.can_device_access_peer(index, n)),
            )
        )
    try:
        torch.empty(1024, pin_memory=True)
    except RuntimeError as error:
        return Gpus(built_for, tuple(found), page_locked=failure_of("torch", error))
    return Gpus(built_for, tuple(found))


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
