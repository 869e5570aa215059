"""How PyTorch is installed, and what goes wrong with it."""

import warnings

from backends.installation.commands import separate_environment
from backends.installation.frameworks import Diagnosis, Gpu, Gpus, Installation, diagnose, failure_of

_, TORCH_ENVIRONMENT = separate_environment("torch")
CUDA_11_TORCH = "pip install --force-reinstall 'torch<2.8' --index-url https://download.pytorch.org/whl/cu118"
CUDA_12_TORCH = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"

KNOWN_FAILURES = {
    r"driver on your system is too old \(found version 11\d{3}\)": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's, which is CUDA 11", CUDA_11_TORCH
    ),
    r"driver on your system is too old \(found version 12\d{3}\)": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's, which is CUDA 12", CUDA_12_TORCH
    ),
    r"driver on your system is too old|driver version is insufficient": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's: update the driver, or stay on the CPU",
        "parallel-core run parallel --backend torch --device-kind cpu",
    ),
    r"no kernel image is available": Diagnosis(
        "this PyTorch holds no machine code for this GPU; its builds for CUDA 12.6 hold that of compute "
        "capability 5.0 to 9.0",
        CUDA_12_TORCH,
    ),
    r"undefined symbol: nccl": Diagnosis(
        "the NCCL that is loaded is not PyTorch's own: the wheels of CUDA 11, 12 and 13 overwrite each other, so "
        "mxnet-cu112 and a CUDA build of PyTorch need an environment each",
        TORCH_ENVIRONMENT,
    ),
}

NO_GPU = ("Found no NVIDIA driver", "no CUDA-capable device is detected", "No CUDA GPUs are available")
"""Messages of PyTorch's CUDA builds on a machine without a GPU, which are no failure."""


def _gpus() -> Gpus:
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
        return Gpus(built_for, failure=None if silent else diagnose("torch", text) or Diagnosis(text))
    devices = tuple(_gpu(index) for index in range(torch.cuda.device_count()))
    try:
        torch.empty(1024, pin_memory=True)
    except RuntimeError as error:
        return Gpus(built_for, devices, page_locked=failure_of("torch", error))
    return Gpus(built_for, devices)


def _gpu(index: int) -> Gpu:
    import torch

    it = torch.cuda.get_device_properties(index)
    others = (other for other in range(torch.cuda.device_count()) if other != index)
    peers = tuple(other for other in others if torch.cuda.can_device_access_peer(index, other))
    return Gpu(index, it.name, it.total_memory, f"{it.major}.{it.minor}", peers)


INSTALLATION = Installation(
    module="torch",
    distributions="torch",
    engines=("async", "sync"),
    known_failures=KNOWN_FAILURES,
    gpus=_gpus,
    cuda_build=CUDA_12_TORCH,
)
