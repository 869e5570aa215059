"""PyTorch behind the `Backend` protocol: what is done before a backend is made, and what all have
in common.

There is one final class for each way of scheduling, which the engine and the devices choose:

- `eager.py`: the calling thread computes, on CPUs and on GPUs. This is the synchronous engine.
- `worker_threads.py`: worker threads queue the work of CPUs.
- `cuda_streams.py`: the caller issues to CUDA streams, for GPUs; CPUs beside them have the threads.
"""

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any, NoReturn, TypeVar, final

from backends.base import BaseBackend, Setup
from backends.devices import HOST, Device, DeviceKind, Wanted, choose_devices, cpu_devices, foreign
from backends.errors import BackendError
from backends.host import check_workers, cores_of, threads_for
from backends.installation.frameworks import environment, import_framework
from backends.installation.probe import reason_against
from backends.protocol import Array, Backend, Engine, FrameworkSettings
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, check_device_kinds, choose_variants
from backends.torch import TF32
from backends.torch.cuda.streams import CudaArray
from backends.torch.streams.future import Failure, Future
from backends.torch.streams.worker import WorkerStream, first_error

Value = TypeVar("Value")

BLOCKING = "CUDA_LAUNCH_BLOCKING"


def load(
    devices: Wanted,
    device_kind: str,
    engine: Engine | None,
    threads_per_device: int | None,
    workers_per_device: int = 1,
    variants: Sequence[str] = (),
) -> Backend:
    """Import PyTorch, and return its backend for an engine and devices.

    Raises BackendError if there are no such devices, or PyTorch cannot be imported.
    """
    engine = engine or "async"
    check_workers("torch", engine, workers_per_device)
    own_variants = choose_variants("torch", engine, variants)
    torch = import_framework("torch", {}, requirement="torch 2 or later")
    from backends.torch import ops

    blocking = "1" if engine == "sync" else "0"
    # Whoever asks for CPUs does not start CUDA.
    names_only_cpus = not isinstance(devices, int) and cpu_devices(devices) == len(devices)
    wants_only_cpus = device_kind == "cpu" or names_only_cpus
    gpus = 0 if wants_only_cpus else _count_gpus(torch, blocking)
    chosen, note = choose_devices(
        "torch", device_kind, devices, gpus, workers_per_device, reason_against
    )
    kinds = [device.kind for device in chosen]
    check_device_kinds("torch", chosen, variants)
    if len(set(kinds)) > 1 and COPY_ON_COMPUTE_QUEUE.name in own_variants:
        raise BackendError(
            f"torch has no variant {COPY_ON_COMPUTE_QUEUE.name!r} on CPUs and GPUs together"
        )
    settings: FrameworkSettings = {}
    if "gpu" in kinds:
        settings = _start_cuda(torch, blocking, TF32.name in own_variants)
    threads = threads_per_device or threads_for(kinds.count("cpu"), workers_per_device)
    setup = Setup(
        framework=torch,
        ops=ops,
        engine=engine,
        devices=chosen,
        note=note,
        threads_per_device=threads,
        workers_per_device=workers_per_device,
        variants=own_variants,
        settings=settings,
    )
    chosen_class: Callable[[Setup], Backend] = resolve_name(_class_path(engine, kinds))
    return chosen_class(setup)


def _class_path(engine: str, kinds: Collection[DeviceKind]) -> str:
    """Return the path, `module:name`, of the backend's class for an engine and kinds of devices."""
    if engine == "sync":
        return "backends.torch.eager:EagerTorch"
    if "gpu" in kinds:
        return "backends.torch.cuda_streams:CudaStreamsTorch"
    return "backends.torch.worker_threads:WorkerThreadsTorch"


@final
class PerDevice(dict[Device, Value]):
    """A value for each of a backend's devices; asking for another device raises BackendError."""

    def __missing__(self, device: Device) -> NoReturn:
        raise foreign("torch", device, (own_device for own_device in self if own_device != HOST))


class TorchBackend(BaseBackend):
    """PyTorch on logical CPU devices, on GPUs, or on both. Abstract."""

    name = "torch"
    streams: tuple[WorkerStream, ...] = ()
    """All worker threads' queues, for the profiler to mark their work."""

    def __init__(self, setup: Setup, scheduler: str, cores_per_device: int | None) -> None:
        super().__init__(setup, scheduler, cores_of(setup.devices, cores_per_device))
        self._torch = setup.framework
        self._limit_threads = partial(_limit_threads, self._torch, setup.threads_per_device)
        self._limit_threads()

    def device_of(self, x: Array) -> Device | None:
        """Return the device of an array; None for a tensor on a CPU, which does not know it."""
        if isinstance(x, Future | CudaArray):
            return x.device
        if x.is_cuda:
            return Device("gpu", x.device.index)
        return None

    def waitall(self) -> None:
        """Block until the worker threads have done everything; raise the first failure."""
        failure = first_error(self.streams)
        if failure is not None:
            error, device = failure
            self._fail(error, f"on {device}")

    def _try(self, fn: Callable[..., Array], *args: Any) -> Array:
        """Call a function, and raise ComputationError for a Failure."""
        try:
            return fn(*args)
        except Failure as failure:
            self._fail(failure)

    def _fail(self, error: BaseException, place: str = "") -> NoReturn:
        """Raise ComputationError for an error, or for the error and device of a Failure."""
        if isinstance(error, Failure):
            super()._fail(error.error, f"on {error.device}")
        super()._fail(error, place)


def _limit_threads(torch: Any, threads: int) -> None:
    """Set the number of threads that PyTorch computes with on the calling thread."""
    # Each thread has a setting of its own, and without it every worker would use all cores. But a
    # thread's first use of OpenMP replaces its setting by the last one of any thread. So the thread
    # first asks for the number, which counts as a use.
    torch.get_num_threads()
    torch.set_num_threads(threads)


def _count_gpus(torch: Any, blocking: str) -> int:
    """Count the GPUs, under the setting that CUDA reads when it starts.

    Without NVIDIA's management library, counting starts CUDA.
    """
    settings = {} if torch.cuda.is_initialized() else {BLOCKING: blocking}
    with environment(settings):
        gpus: int = torch.cuda.device_count()
    return gpus


def _start_cuda(torch: Any, blocking: str, tf32: bool) -> FrameworkSettings:
    """Start CUDA under CUDA_LAUNCH_BLOCKING=`blocking`, allow or forbid TF32, and return both.

    Raises BackendError if CUDA cannot be started, or was started with another value.
    """
    present_value = os.environ.get(BLOCKING, "0")
    if present_value != blocking and torch.cuda.is_initialized():
        raise BackendError(
            f"CUDA was started with {BLOCKING}={present_value}, and this engine needs {blocking}: "
            "start afresh"
        )
    os.environ[BLOCKING] = blocking
    # Otherwise the first array starts CUDA, perhaps after another load has changed the setting.
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
