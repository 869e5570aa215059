"""The workers of GPUs that stand beside CPU devices, or that are several logical devices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from backends.devices import HOST, Device
from backends.host import core_numbers
from backends.torch.cuda.copies import CudaCopies, CudaLoads
from backends.torch.cuda.streams import CudaStream
from backends.torch.streams.worker import WorkerStream

__all__ = ["CudaWorkers"]


@final
class CudaWorkers:
    """For each GPU's logical device a stream to compute, one for what arrives and one for what leaves; two for HOST.

    `copies_on_cpus` are the CPU devices' streams for copies. `prepare` is what a thread needs that computes on CPUs.
    """

    def __init__(
        self,
        torch: Any,
        devices: Sequence[Device],
        copies_on_cpus: Mapping[Device, WorkerStream],
        prepare: Callable[[], None],
        on_compute_queue: bool,
    ) -> None:
        on_gpus = [device for device in devices if device.kind == "gpu"]
        gpus = sorted({device.index for device in on_gpus})

        def streams(what: str) -> dict[Device, CudaStream]:
            others = {gpu: [other for other in gpus if other != gpu] for gpu in gpus}
            return {d: CudaStream(torch.cuda, d, f"{d} {what}", others[d.index]) for d in on_gpus}

        computing = streams("compute")
        arriving, leaving = (computing, computing) if on_compute_queue else (streams("copy in"), streams("copy out"))
        cores = set(core_numbers())
        host_compute, host_copy = (WorkerStream(HOST, f"host {what}", cores, prepare) for what in ("compute", "copy"))
        self.compute: dict[Device, WorkerStream] = {**computing, HOST: host_compute}
        self.loads = CudaLoads(torch, gpus)
        self.copies: dict[Device, CudaCopies] = {
            device: CudaCopies(
                torch, device, {**copies_on_cpus, HOST: host_copy}.get(device), arriving, leaving, on_compute_queue
            )
            for device in (*devices, HOST)
        }
        own = dict.fromkeys((*computing.values(), *arriving.values(), *leaving.values()))
        self.streams: tuple[WorkerStream, ...] = (*own, host_compute, host_copy)
