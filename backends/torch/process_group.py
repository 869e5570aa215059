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
    cuda = backend.devices[0].kind == "gpu"
    if cuda:
        torch.cuda.set_device(backend.devices[0].index)
    timeout = timedelta(seconds=where.timeout)
    try:
        # Under torchrun a restarted job finds the store of the one before.
        attempt = f"parallel-core/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        store = distributed.PrefixStore(attempt, _store(distributed, where, where.rank, timeout))
        hosts = _wait_for_all(store, where.rank, where.size, where.timeout)
        if cuda:
            its_gpu = torch.cuda.get_device_properties(backend.devices[0].index)
            check_gpus(store, where.rank, hosts, getattr(its_gpu, "uuid", None))
        distributed.init_process_group(
            "nccl" if cuda else "gloo",
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
        self._sums = 0
        first = backend.devices[0]
        on_gpu = first.kind == "gpu"
        self._place = f"cuda:{first.index}" if on_gpu else "cpu"
        self._stream: WorkerStream | None = None
        self._queue: CudaStream | None = None
        if backend.engine == "async":
            self._stream = WorkerStream(first, f"{first} exchange", set(), lambda: None)
            self._queue = CudaStream(torch, first) if on_gpu else None

    def sum(self, x: Array) -> Array:
        if self._stream is None:
            return self._sum(x)
        if self._queue is not None:
            return self._stream.submit(self._queue.submit_consuming, self._sum, x)
        return self._stream.submit_consuming(self._sum, x)

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        if self._stream is not None:
            # It queues behind earlier sums, because all processes must sum in the same order.
            summed = self._stream.submit(self._sum_now, x)
            try:
                return np.asarray(summed.result())
            except Failure as failure:
                raise failure.error from None
        return self._sum_now(x)

    def waitall(self) -> None:
        if self._stream is not None:
            self._stream.barrier()()
            if self._stream.failure is not None:
                raise self._stream.failure.error
        if self._queue is not None:
            self._queue.synchronize()

    def close(self) -> None:
        self.waitall()
        barrier(self)
        self._distributed.destroy_process_group()

    def _sum(self, x: Array) -> Array:
        arrays = list(tree_leaves(x))
        self._sums += 1
        agree_on_exchange(self._sum_now, self.rank, self.hosts, self._sums, arrays)
        # Each exchange has a fixed cost, so arrays of one type are summed together.
        by_type = sorted(arrays, key=lambda array: str(array.dtype))
        for _, some in groupby(by_type, key=lambda array: array.dtype):
            self._sum_together(list(some))
        return x

    def _sum_together(self, arrays: Sequence[Array]) -> None:
        if len(arrays) == 1 and arrays[0].is_contiguous():
            self._reduce(arrays[0])
            return
        joined = self._torch.cat([array.detach().reshape(-1) for array in arrays])
        self._reduce(joined)
        for array, part in zip(
            arrays, joined.split([array.numel() for array in arrays]), strict=True
        ):
            array.copy_(part.view(array.shape))

    def _sum_now(self, x: np.ndarray) -> np.ndarray:
        tensor = self._torch.tensor(x, device=self._place)
        self._reduce(tensor)
        return np.asarray(tensor.cpu().numpy())

    def _reduce(self, tensor: Array) -> None:
        try:
            self._distributed.all_reduce(tensor)
        except RuntimeError as error:
            raise GroupError(
                f"another rank is gone or does not answer ({self.transport}: {_reason(error)})"
            ) from error


def _store(distributed: Any, where: Rendezvous, rank: int, timeout: timedelta) -> Any:
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    named: dict[str, Any] = {"timeout": timeout, "wait_for_workers": False}
    if serves:
        # Without a listener the store would listen at every address of this machine.
        named["master_listen_fd"] = listen_at(
            os.environ.get(BIND_VARIABLE, where.address), where.port
        ).detach()
    return distributed.TCPStore(where.address, where.port, where.size, serves, **named)


def _wait_for_all(store: Any, rank: int, size: int, seconds: float) -> tuple[str, ...]:
    store.set(f"host of {rank}", socket.gethostname())
    keys = [f"host of {number}" for number in range(size)]
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except RuntimeError as error:
        missing = [number for number in range(size) if not store.check([keys[number]])]
        raise GroupError(
            f"rank {', '.join(map(str, missing))} has not joined within {seconds:g} s"
        ) from error
    return tuple(store.get(key).decode() for key in keys)


def check_gpus(store: Any, rank: int, hosts: Sequence[str], uuid: object) -> None:
    """Raise BackendError, on every rank, if ranks share a GPU, of which NCCL would only say
    "invalid usage".

    PyTorch before 2.3 knows no UUIDs: None.
    """
    store.set(f"GPU of {rank}", f"{hosts[rank]}: {uuid or rank}")
    gpus = [store.get(f"GPU of {number}") for number in range(len(hosts))]
    if sharing := [number for number, gpu in enumerate(gpus) if gpus.count(gpu) > 1]:
        raise BackendError(
            f"ranks {', '.join(map(str, sharing))} share a GPU, and NCCL needs a separate one for "
            "each: start fewer "
            "processes, or let them compute on CPUs (--device-kind cpu)"
        )


def _reason(error: BaseException) -> str:
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    # gloo writes its source file before the reason, and advice after it.
    return re.sub(r"^\[\S+:\d+\] ", "", line).split(". ")[0]
