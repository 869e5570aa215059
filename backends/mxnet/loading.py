"""Sets what MXNet reads from the environment, imports it, chooses devices and starts its
workers.
"""

import atexit
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from backends.base import Setup
from backends.devices import HOST, Device, Wanted, choose_devices, cpu_devices
from backends.host import check_workers, cores_of, limit_openmp_threads, on_cores, threads_for
from backends.installation.frameworks import import_framework
from backends.installation.kernels import CORE_TYPE
from backends.installation.probe import reason_against
from backends.mxnet import BLAS_AS_SHIPPED, BULK_ON, TEMPORARY_SPACE_LOW
from backends.mxnet.backend import MXNetBackend, end_all
from backends.mxnet.installation import load_cuda_libraries
from backends.mxnet.kernels import core_type_to_set
from backends.protocol import Engine
from backends.registry.variants import check_device_kinds, choose_variants

OWN_GPU_WORKERS = 2
"""How many workers MXNet gives a GPU's queue by itself."""
_cores: dict[Device, set[int]] = {}
"""MXNet never ends its workers: those of an earlier backend of this process serve a later one, on
the same cores.
"""


def load(
    devices: Wanted,
    device_kind: str,
    engine: Engine | None,
    threads_per_device: int | None,
    workers_per_device: int = 1,
    variants: Sequence[str] = (),
) -> MXNetBackend:
    """Import MXNet under its settings, and return its backend for an engine and devices.

    Raises BackendError if there are no such devices, or MXNet cannot be imported in this way.
    """
    engine = engine or "async"
    check_workers("mxnet", engine, workers_per_device)
    own_variants = choose_variants("mxnet", engine, variants)
    threads = threads_per_device or threads_for(cpu_devices(devices), workers_per_device)
    settings: dict[str, str | None] = {
        # Unset, MXNet takes ThreadedEnginePerDevice.
        "MXNET_ENGINE_TYPE": "NaiveEngine" if engine == "sync" else None,
        "MXNET_CPU_WORKER_NTHREADS": str(workers_per_device),
        # Operators that share one of these pieces of scratch memory wait for each other, also if
        # they are on different devices.
        "MXNET_CPU_TEMP_COPY": "4" if TEMPORARY_SPACE_LOW.name in own_variants else "256",
        # In bulk, all of a backward pass is one operator: no gradient would be ready before the
        # last one is.
        "MXNET_EXEC_BULK_EXEC_TRAIN": "1" if BULK_ON.name in own_variants else "0",
        # A unit (`ops.as_unit`) does all of its operations: equal ones each, and on GPUs none fused
        # with another.
        "MXNET_ELIMINATE_COMMON_EXPR": "0",
        "MXNET_USE_FUSION": "0",
        "OMP_NUM_THREADS": str(threads),
        CORE_TYPE: core_type_to_set(as_shipped=BLAS_AS_SHIPPED.name in own_variants),
    }
    streams = _streams_on_one_gpu(devices)
    if streams > OWN_GPU_WORKERS:
        settings["MXNET_GPU_WORKER_NTHREADS"] = str(streams)
    mx = import_framework(
        "mxnet",
        settings,
        requirement="Python < 3.12 and numpy < 1.24",
        prepare=load_cuda_libraries,
        # NumPy has a separate OpenBLAS, which would read it in processes that this one starts.
        read_once=(CORE_TYPE,),
    )
    _end_quietly(mx)
    from backends.mxnet import ops

    chosen, note = choose_devices(
        "mxnet", device_kind, devices, mx.context.num_gpus(), workers_per_device, reason_against
    )
    check_device_kinds("mxnet", chosen, variants)
    contexts = {device: mx.Context(device.kind, device.index) for device in chosen}
    if any(device.kind == "gpu" for device in chosen):
        contexts[HOST] = mx.cpu_pinned(0)
    try:
        # A failure that another backend left unread must not come out of this one's verbs.
        mx.npx.waitall()
    except Exception as error:
        end_all(error)
    cores: Sequence[set[int]]
    if engine == "async":
        wanted_cores = cores_of(chosen, workers_per_device * threads)
        cores = _start_workers(contexts, wanted_cores, workers_per_device, threads)
        workers = "one worker" if workers_per_device == 1 else f"{workers_per_device} workers"
        scheduler = f"MXNet's own engine: one queue and {workers} per device"
    else:
        cores = cores_of(chosen, None)
        limit_openmp_threads(threads)
        scheduler = "none: MXNet's NaiveEngine runs each operator where it is called"
    setup = Setup(
        mx, ops, engine, chosen, note, threads, workers_per_device, own_variants, settings
    )
    return MXNetBackend(setup, scheduler, cores, contexts)


def _start_workers(
    contexts: Mapping[Device, Any], cores: Sequence[set[int]], workers: int, threads: int
) -> Sequence[set[int]]:
    """Start the workers of each CPU device on its cores, and return the cores of all devices.

    They are not the given ones if a device's workers were running already.
    """
    import mxnet as mx

    from backends.mxnet.engine import limit_threads

    # MXNet starts a context's workers at its first operator, on the cores of the thread that issues
    # that operator. The workers of cpu(0), which serve every wait, may run on any core, so they are
    # started first. A GPU's workers compute nothing, and need no cores.
    mx.np.zeros((1,), ctx=mx.cpu(0)).wait_to_read()
    for (device, context), cores_of_device in zip(contexts.items(), cores, strict=False):
        if device.kind == "gpu" or device in _cores:
            continue
        with on_cores(cores_of_device):
            mx.np.zeros((1,), ctx=context).wait_to_read()
        # MXNet trusts OMP_NUM_THREADS, which OpenMP has not read if another framework brought it
        # along before; and MXNet's OpenBLAS hangs if several workers use more than one thread each.
        limit_threads(context, workers, threads)
        _cores[device] = cores_of_device
    return [
        _cores.get(device, cores_of_device)
        for device, cores_of_device in zip(contexts, cores, strict=False)
    ]


@cache
def _end_quietly(mx: Any) -> None:
    """Let MXNet raise no failure at exit: nobody waited for it, and the program has ended."""
    at_exit = mx.base._notify_shutdown

    def notify() -> None:
        """Call MXNet's own function at exit, and drop what it raises."""
        # Some of MXNet's errors become Python's own: a ValueError, say.
        with suppress(Exception):
            at_exit()

    atexit.unregister(at_exit)
    atexit.register(notify)


def _streams_on_one_gpu(devices: Wanted) -> int:
    """Return the most devices that are named on one GPU; 0 if none are named."""
    # A mere number means streams only if there are too few GPUs, and MXNet can count its GPUs only
    # after it has read its settings.
    if isinstance(devices, int):
        return 0
    devices_on_gpu = Counter(device.index for device in devices if device.kind == "gpu")
    return max(devices_on_gpu.values(), default=0)
