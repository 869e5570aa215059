"""PyTorch's processes: torch.distributed, over gloo on CPUs and NCCL on GPUs. Read it beside
`backends/mxnet/process_group.py`.

The processes meet in a store, a small server that rank 0 runs (under torchrun its agent does). Then
every process is connected with every other, and a sum goes around among them as a ring. A sum
occupies the thread that asks for it, so on the asynchronous engine a separate thread asks, as the
copies of a device have one.
"""

import os
import re
import socket
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any, final

import numpy as np

from backends.arrays import tree_leaves
from backends.errors import BackendError
from backends.process_groups.addresses import interface_towards, listen_at
from backends.process_groups.group import Group, GroupError, agree_on_exchange, barrier
from backends.process_groups.rendezvous import BIND_VARIABLE, Rendezvous
from backends.protocol import Array, Backend
from backends.torch.cuda.streams import CudaStream
from backends.torch.streams.future import Failure
from backends.torch.streams.worker import WorkerStream


def join_torch(backend: Backend, where: Rendezvous) -> Group:
    """Meet the other processes; raises GroupError if they do not come in time."""
    if where.rank is None:
        raise BackendError("RANK is not set: torch's processes know their ranks before they meet")
    import torch
    import torch.distributed

    interface = os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_towards(where.address))
    # NCCL takes a name for a prefix, unless it begins with =.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    distributed: Any = torch.distributed
    device = backend.devices[0]
    is_on_gpu = device.kind == "gpu"
    if is_on_gpu:
        torch.cuda.set_device(device.index)
    timeout = timedelta(seconds=where.timeout)
    try:
        # Under torchrun, a restarted job finds the old store, with the keys of the attempt before.
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        whole_store = _store(distributed, where, where.rank, timeout)
        store = distributed.PrefixStore(f"parallel-core/{restarts}", whole_store)
        hosts = _wait_for_all(store, where.rank, where.size, where.timeout)
        if is_on_gpu:
            gpu = torch.cuda.get_device_properties(device.index)
            check_gpus(store, where.rank, hosts, getattr(gpu, "uuid", None))
        distributed.init_process_group(
            "nccl" if is_on_gpu else "gloo",
            store=store,
            rank=where.rank,
            world_size=where.size,
            timeout=timeout,
        )
    except (RuntimeError, ValueError) as error:
        raise GroupError(
            f"rank {where.rank} cannot join the other ranks: {_reason(error)}"
        ) from error
    return TorchGroup(torch, backend, where.rank, hosts)


@final
class TorchGroup:
    """A process group of torch.distributed."""

    def __init__(self, torch: Any, backend: Backend, rank: int, hosts: tuple[str, ...]) -> None:
        self._torch, self._distributed = torch, torch.distributed
        self.rank, self.size, self.hosts = rank, len(hosts), hosts
        self.transport: str = self._distributed.get_backend()
        self._exchanges = 0
        device = backend.devices[0]
        is_on_gpu = device.kind == "gpu"
        self._torch_device = f"cuda:{device.index}" if is_on_gpu else "cpu"
        self._thread: WorkerStream | None = None
        self._cuda_stream: CudaStream | None = None
        if backend.engine == "async":
            self._thread = WorkerStream(device, f"{device} exchange", set(), lambda: None)
            self._cuda_stream = CudaStream(torch, device) if is_on_gpu else None

    def sum(self, x: Array) -> Array:
        """Enqueue the sum of a value over all processes, in its memory."""
        if self._thread is None:
            return self._sum(x)
        if self._cuda_stream is not None:
            return self._thread.submit(self._cuda_stream.submit_consuming, self._sum, x)
        return self._thread.submit_consuming(self._sum, x)

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        """Sum a float32 array over all processes, and block until it is computed."""
        if self._thread is not None:
            # Behind earlier sums, because all processes must sum in the same order.
            total = self._thread.submit(self._sum_now, x)
            try:
                return np.asarray(total.result())
            except Failure as failure:
                raise failure.error from None
        return self._sum_now(x)

    def waitall(self) -> None:
        """Block until all sums are done; raises the error of one that failed."""
        if self._thread is not None:
            wait_until_done = self._thread.barrier()
            wait_until_done()
            if self._thread.failure is not None:
                raise self._thread.failure.error
        if self._cuda_stream is not None:
            self._cuda_stream.synchronize()

    def close(self) -> None:
        """Wait for all sums and all processes, and leave the group."""
        self.waitall()
        barrier(self)
        self._distributed.destroy_process_group()

    def _sum(self, x: Array) -> Array:
        """Sum the tensors of a value over all processes now, and return the value."""
        arrays = list(tree_leaves(x))
        self._exchanges += 1
        agree_on_exchange(self._sum_now, self.rank, self.hosts, self._exchanges, arrays)
        # Each exchange has a fixed cost, so arrays of one dtype are summed together.
        by_dtype = sorted(arrays, key=lambda array: str(array.dtype))
        for _, arrays_of_dtype in groupby(by_dtype, key=lambda array: array.dtype):
            self._sum_together(list(arrays_of_dtype))
        return x

    def _sum_together(self, arrays: Sequence[Array]) -> None:
        """Sum tensors of one dtype over all processes, by one exchange."""
        if len(arrays) == 1 and arrays[0].is_contiguous():
            self._reduce(arrays[0])
            return
        joined = self._torch.cat([array.detach().reshape(-1) for array in arrays])
        self._reduce(joined)
        lengths = [array.numel() for array in arrays]
        for array, section in zip(arrays, joined.split(lengths), strict=True):
            array.copy_(section.view(array.shape))

    def _sum_now(self, x: np.ndarray) -> np.ndarray:
        """Sum a NumPy array over all processes now."""
        tensor = self._torch.tensor(x, device=self._torch_device)
        self._reduce(tensor)
        return np.asarray(tensor.cpu().numpy())

    def _reduce(self, tensor: Array) -> None:
        """Replace a tensor by its sum over all processes; raises GroupError if one is gone."""
        try:
            self._distributed.all_reduce(tensor)
        except RuntimeError as error:
            raise GroupError(
                f"another rank is gone or does not answer ({self.transport}: {_reason(error)})"
            ) from error


def _store(distributed: Any, where: Rendezvous, rank: int, timeout: timedelta) -> Any:
    """Return the store in which the processes meet; rank 0 serves it, unless torchrun does."""
    agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serves = rank == 0 and not agent_serves
    make_store = partial(
        distributed.TCPStore,
        where.address,
        where.port,
        where.size,
        serves,
        timeout=timeout,
        wait_for_workers=False,
    )
    if not serves:
        return make_store()
    # Without a listener the store would listen at every address of this machine.
    listener = listen_at(os.environ.get(BIND_VARIABLE, where.address), where.port)
    return make_store(master_listen_fd=listener.detach())


def _wait_for_all(store: Any, rank: int, size: int, seconds: float) -> tuple[str, ...]:
    """Wait until every rank has joined, and return the name of each rank's host."""
    store.set(f"host of {rank}", socket.gethostname())
    keys = [f"host of {number}" for number in range(size)]
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except RuntimeError as error:
        missing_ranks = [str(number) for number in range(size) if not store.check([keys[number]])]
        raise GroupError(
            f"rank {', '.join(missing_ranks)} has not joined within {seconds:g} s"
        ) from error
    return tuple(store.get(key).decode() for key in keys)


def check_gpus(store: Any, rank: int, hosts: Sequence[str], uuid: object) -> None:
    """Raise BackendError, on every rank, if ranks share a GPU.

    NCCL would only say "invalid usage". `uuid` is that of this rank's GPU; None before PyTorch 2.3,
    which knows no UUIDs.
    """
    # Without a UUID, each rank's GPU counts as another one.
    store.set(f"GPU of {rank}", f"{hosts[rank]}: {uuid or rank}")
    gpus = [store.get(f"GPU of {number}") for number in range(len(hosts))]
    sharing_ranks = [str(number) for number, gpu in enumerate(gpus) if gpus.count(gpu) > 1]
    if sharing_ranks:
        raise BackendError(
            f"ranks {', '.join(sharing_ranks)} share a GPU, and NCCL needs a separate one for "
            "each: start fewer processes, or let them compute on CPUs (--device-kind cpu)"
        )


def _reason(error: BaseException) -> str:
    """Return the sentence of an error of torch.distributed that says what is wrong."""
    first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    # gloo writes its source file before the reason, and advice after it.
    without_file = re.sub(r"^\[\S+:\d+\] ", "", first_line)
    reason, _, _ = without_file.partition(". ")
    return reason
