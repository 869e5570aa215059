"""Imports PyTorch, chooses its devices, and chooses the class whose way of scheduling they and the engine need."""

import os
from collections.abc import Collection, Sequence
from typing import Any

from backends.devices import DeviceKind, Wanted, choose_devices, cpu_devices
from backends.errors import BackendError
from backends.host import check_workers, threads_for
from backends.installation.gpu_probe import reason_against
from backends.installation.importing import import_framework
from backends.protocol import Backend, Engine, FrameworkSettings
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, check_device_kinds, choose_variants
from backends.torch.base import Setup
from backends.torch.cuda.threads import CudaThreadsTorch
from backends.torch.eager import EagerTorch
from backends.torch.variants import TF32
from backends.torch.worker_threads import WorkerThreadsTorch

__all__ = ["class_for", "load_torch"]

BLOCKING = "CUDA_LAUNCH_BLOCKING"


def load_torch(
    devices: Wanted,
    device_kind: str,
    engine: Engine | None,
    threads_per_device: int | None,
    workers_per_device: int = 1,
    variants: Sequence[str] = (),
) -> Backend:
    """Return PyTorch's backend for an engine and devices. Raises BackendError for what cannot be had."""
    engine = engine or "async"
    check_workers("torch", engine, workers_per_device)
    own_variants = choose_variants("torch", engine, variants)
    torch = import_framework("torch", {}, requirement="torch 2 or later")
    from backends.torch import ops

    blocking = str(int(engine == "sync"))
    # Whoever asks for CPUs leaves CUDA alone.
    only_cpus = device_kind == "cpu" or (not isinstance(devices, int) and cpu_devices(devices) == len(devices))
    gpus = 0 if only_cpus else _count_gpus(torch, blocking)
    chosen, note = choose_devices("torch", device_kind, devices, gpus, workers_per_device, reason_against)
    kinds = [device.kind for device in chosen]
    check_device_kinds("torch", chosen, variants)
    if len(set(kinds)) > 1 and COPY_ON_COMPUTE_QUEUE.name in own_variants:
        raise BackendError(f"torch has no variant {COPY_ON_COMPUTE_QUEUE.name!r} on CPUs and GPUs together")
    setup = Setup(
        torch=torch,
        ops=ops,
        devices=chosen,
        note=note,
        threads_per_device=threads_per_device or threads_for(kinds.count("cpu"), workers_per_device),
        workers_per_device=workers_per_device,
        variants=own_variants,
        settings=_start_cuda(torch, blocking, TF32.name in own_variants) if "gpu" in kinds else {},
    )
    return class_for(engine, kinds)(setup)


def class_for(
    engine: Engine, kinds: Collection[DeviceKind]
) -> type[EagerTorch] | type[WorkerThreadsTorch] | type[CudaThreadsTorch]:
    """Return the class that schedules work on devices of these kinds."""
    if engine == "sync":
        return EagerTorch
    return CudaThreadsTorch if "gpu" in kinds else WorkerThreadsTorch


def _count_gpus(torch: Any, blocking: str) -> int:
    """Count the GPUs, with the setting that CUDA reads when it starts: without NVIDIA's management library it does."""
    before = os.environ.get(BLOCKING)
    if not torch.cuda.is_initialized():
        os.environ[BLOCKING] = blocking
    gpus: int = torch.cuda.device_count()
    if before is None:
        os.environ.pop(BLOCKING, None)
    else:
        os.environ[BLOCKING] = before
    return gpus


def _start_cuda(torch: Any, blocking: str, tf32: bool) -> FrameworkSettings:
    """Set whether the host waits after every kernel, and whether TensorFloat-32 may replace float32; return both.

    Raises BackendError if CUDA cannot be started, or has been with the other value of CUDA_LAUNCH_BLOCKING.
    """
    present = os.environ.get(BLOCKING, "0")
    if present != blocking and torch.cuda.is_initialized():
        raise BackendError(
            f"CUDA was started with {BLOCKING}={present}, and this engine needs {blocking}: start afresh"
        )
    os.environ[BLOCKING] = blocking
    # Now, or the first array would start it, perhaps after another load has changed the setting.
    try:
        torch.cuda.init()
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "no reason given")
        raise BackendError(f"torch cannot start CUDA ({reason}): use --device-kind cpu") from error
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    return {
        BLOCKING: blocking,
        "torch.backends.cuda.matmul.allow_tf32": str(tf32),
        "torch.backends.cudnn.allow_tf32": str(tf32),
    }
