"""PyTorch: one class for each way of scheduling."""

from collections.abc import Collection

from backends.devices import DeviceKind
from backends.registry import Offer


def class_path(engine: str, kinds: Collection[DeviceKind]) -> str:
    """Return the path, `module:name`, of the class that schedules work on devices of these kinds."""
    if engine == "sync":
        return "backends.torch.eager:EagerTorch"
    if "gpu" in kinds:
        return "backends.torch.cuda.threads:CudaThreadsTorch"
    return "backends.torch.worker_threads:WorkerThreadsTorch"


OFFER = Offer(
    title="PyTorch",
    backend="backends.torch.backend:load",
    class_path=class_path,
    variants="backends.torch.variants:VARIANTS",
    installation="backends.torch.installation:INSTALLATION",
    kernels="backends.torch.kernels",
    profiler="backends.torch.profiler",
    group="backends.torch.process_group:join_torch",
)
