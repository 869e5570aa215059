"""PyTorch: one class for each way of scheduling. Importing this module does not import torch."""

import warnings

from backends.installation.frameworks import (
    Diagnosis,
    Gpu,
    Gpus,
    Installation,
    diagnose,
    separate_environment,
)
from backends.registry import Offer
from backends.registry.variants import (
    COPY_ON_COMPUTE_QUEUE,
    COPY_ON_OWN_QUEUE,
    MATRIX_PRECISION,
    Variant,
)

OFFER = Offer(
    title="PyTorch",
    backend="backends.torch.backend:load",
    variants="backends.torch:VARIANTS",
    installation="backends.torch:INSTALLATION",
    kernels="backends.torch.kernels",
    profiler="backends.torch.profiler",
    group="backends.torch.process_group:join_torch",
    tried=1,
    queue="by workers of parallel-core's queue, for PyTorch has none",
    finds_gpus="import torch; torch.cuda.init()",
)

TF32 = Variant(
    "tf32",
    MATRIX_PRECISION,
    "Matrix multiplications and convolutions round operands to TensorFloat-32, with 10 bits of "
    "mantissa, not 23, if "
    "the GPU has matrix units for it: look for shorter multiplications, and for checks that miss "
    "NumPy's numbers.",
    kinds=("gpu",),
    elsewhere="only PyTorch on GPUs has a switch for it",
    not_on_sync="is the reference for numbers, and so always computes in float32",
)
GRAPH_REPLAY = Variant(
    "graph-replay",
    "issue of kernels",
    "The kernels of a launch that differentiates or updates are recorded when it comes for the "
    "third time, and from then on issued as one CUDA graph (a whole step, if a device exchanges "
    "nothing): look for small batches that take less time, and no gaps between their kernels.",
    kinds=("gpu",),
    elsewhere="only PyTorch can record what a function issues to a GPU",
)
VARIANTS: tuple[Variant, ...] = (
    COPY_ON_OWN_QUEUE,
    COPY_ON_COMPUTE_QUEUE,
    *TF32.after_default(
        "tf32-off",
        "Matrix multiplications and convolutions are computed in float32 throughout, as on CPUs "
        "and in NumPy.",
    ),
    *GRAPH_REPLAY.after_default(
        "kernel-by-kernel",
        "The host issues every kernel by itself: look for gaps between kernels that take less time "
        "than that.",
    ),
)

_, TORCH_ENVIRONMENT = separate_environment("torch")
CUDA_11_TORCH = (
    "pip install --force-reinstall 'torch<2.8' --index-url https://download.pytorch.org/whl/cu118"
)
CUDA_12_TORCH = (
    "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
)

KNOWN_FAILURES = {
    r"driver on your system is too old \(found version 11\d{3}\)": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's, which is CUDA 11",
        CUDA_11_TORCH,
        "driver-too-old",
    ),
    r"driver on your system is too old \(found version 12\d{3}\)": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's, which is CUDA 12",
        CUDA_12_TORCH,
        "driver-too-old",
    ),
    r"driver on your system is too old|driver version is insufficient": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's: update the driver, or "
        "stay on the CPU",
        "parallel-core run parallel --backend torch --device-kind cpu",
        "driver-too-old",
    ),
    r"no kernel image is available": Diagnosis(
        "this PyTorch holds no machine code for this GPU; its builds for CUDA 12.6 hold that of "
        "compute "
        "capability 5.0 to 9.0",
        CUDA_12_TORCH,
        "no-code-for-gpu",
    ),
    r"undefined symbol: nccl": Diagnosis(
        "the NCCL that is loaded is not PyTorch's own: the wheels of CUDA 11, 12 and 13 overwrite "
        "each other, so "
        "mxnet-cu112 and a CUDA build of PyTorch need an environment each",
        TORCH_ENVIRONMENT,
        "other-nccl",
    ),
}

NO_GPU = (
    "Found no NVIDIA driver",
    "no CUDA-capable device is detected",
    "No CUDA GPUs are available",
)
"""Messages of PyTorch's CUDA builds on a machine without a GPU, which are no failure."""


def _gpus() -> Gpus:
    """Return the GPUs that PyTorch finds, or why it can use none."""
    import torch

    if torch.version.cuda is None:
        return Gpus()
    built_for = f"CUDA {torch.version.cuda}"
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        is_usable = torch.cuda.is_available()
    if is_usable:
        devices = tuple(_gpu(index) for index in range(torch.cuda.device_count()))
        return Gpus(built_for, devices)
    words: list[str] = []
    for warning in messages:
        words += str(warning.message).split()
    text = " ".join(words)
    has_no_gpu = not text or any(phrase in text for phrase in NO_GPU)
    if has_no_gpu:
        return Gpus(built_for)
    return Gpus(built_for, failure=diagnose("torch", text) or Diagnosis(text))


def _gpu(index: int) -> Gpu:
    """Return a GPU as PyTorch describes it."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    compute_capability = f"{properties.major}.{properties.minor}"
    return Gpu(index, properties.name, properties.total_memory, compute_capability)


INSTALLATION = Installation(
    module="torch",
    engines=("async", "sync"),
    known_failures=KNOWN_FAILURES,
    gpus=_gpus,
    cuda_build=CUDA_12_TORCH,
)
