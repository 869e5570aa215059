"""MXNet's processes: its key-value store `dist_sync` over ps-lite.

Read it beside `backends/torch/process_group.py`. The processes meet at a scheduler. Servers,
separate processes, make the sums: every worker pushes its array to a server and pulls the sum of
all. Push and pull are operators of MXNet's engine, ordered by the arrays that they read and write,
so no thread needs to wait for them. ps-lite has no deadline: if a worker dies, the other workers
wait for ever.
"""

import os
import socket
from typing import Any, final

import numpy as np

from backends.arrays import tree_leaves, tree_map
from backends.errors import BackendError
from backends.process_groups.group import Group, agree_on_exchange, gather
from backends.process_groups.rendezvous import Rendezvous
from backends.protocol import Array, Backend

SUMMED_AS_THEY_ARE = ("float16", "float32", "float64")
"""The types that a server sums; any other type ends its process."""


def join_mxnet(_: Backend, where: Rendezvous) -> Group:
    """Meet the other processes; blocks for ever if one of them does not come."""
    if os.environ.get("DMLC_ROLE") != "worker":
        raise BackendError(
            "MXNet's processes meet at a scheduler, and DMLC_ROLE and related variables are not "
            "set: start them with "
            "`parallel-core launch --backend mxnet`, not with torchrun"
        )
    import mxnet as mx

    return MXNetGroup(mx, where.rank)


@final
class MXNetGroup:
    """A key-value store of the type `dist_sync`."""

    transport = "dist_sync"

    def __init__(self, mx: Any, rank: int | None) -> None:
        if not mx.runtime.Features().is_enabled("DIST_KVSTORE"):
            raise BackendError(
                "MXNet's wheel for ARM holds no parameter server, and so sums in one process only: "
                "take --backend torch"
            )
        self._mx = mx
        self._store = mx.kv.create("dist_sync")
        # ps-lite numbers workers as they come; RANK overrides that.
        self.rank: int = self._store.rank if rank is None else rank
        self.size: int = self._store.num_workers
        self._context = mx.cpu(0)
        self._exchanges = 0
        self._keys: set[str] = set()
        self.hosts: tuple[str, ...] = ("",) * self.size
        self.hosts = tuple(name.decode() for name in gather(self, socket.gethostname().encode()))

    def sum(self, x: Array) -> Array:
        """Queue the sum over all processes, in the memory of each array of a value."""
        arrays = list(tree_leaves(x))
        self._exchanges += 1
        agree_on_exchange(self.sum_on_host, self.rank, self.hosts, self._exchanges, arrays)
        # Servers sum arrays of a higher priority first: here the first arrays of a value.
        sums = [
            self._sum_one(str(position), array, -position) for position, array in enumerate(arrays)
        ]
        remaining = iter(sums)
        return tree_map(lambda _: next(remaining), x)

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        """Sum a float32 array over all processes, and block until it is computed."""
        loaded = self._mx.np.array(x, dtype=x.dtype, ctx=self._context)
        total = self._sum_one("host", loaded, 0)
        return np.asarray(total.asnumpy())

    def waitall(self) -> None:
        self._mx.npx.waitall()

    def close(self) -> None:
        """Wait for all sums and all processes, and leave the store."""
        self.waitall()
        # Freeing the store waits for all processes. At exit Python would free it when none of its
        # threads can keep a deadline any more.
        del self._store

    def _sum_one(self, name: str, x: Array, priority: int) -> Array:
        """Queue the sum of an array over all processes, and return the sum."""
        if x.size == 0:
            return x
        if x.dtype.name not in SUMMED_AS_THEY_ARE:
            float_sum = self._sum_one(name, x.astype("float64"), priority)
            return float_sum.astype(x.dtype)
        if x.ndim == 0:
            vector_sum = self._sum_one(name, x.reshape(1), priority)
            return vector_sum.reshape(())
        array = x.as_nd_ndarray()
        # The shape and type of a key never change.
        key = f"{name} {x.dtype.name} {x.shape}"
        if key not in self._keys:
            self._store.init(key, self._mx.nd.zeros_like(array))
            self._keys.add(key)
        self._store.push(key, array, priority)
        self._store.pull(key, array, priority)
        return x
