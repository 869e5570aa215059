"""JAX's processes: a client of XLA with a device in each of them, whose sums go over gloo. Read it beside
`backends/torch/process_group.py` and `backends/mxnet/process_group.py`.

That client stands beside those of the devices. A sum is a program on it, which XLA queues like any other: programs with
an exchange run one by one, in the order of their launches, so no thread of ours needs to wait for them. A value is
copied from the first device to this client, and its sum back. gloo has no deadline here: a rank that hangs is waited
for, and one that dies is found at once.
"""

import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from itertools import groupby
from typing import Any, final

import numpy as np

from backends.arrays import check_terms, tree_leaves, tree_map
from backends.errors import BackendError, ComputationError, message_of
from backends.jax.kernels import pool_of
from backends.jax.meeting import Meeting, meet
from backends.process_groups.addresses import interface_towards
from backends.process_groups.group import Group, GroupError, agree_on_exchange
from backends.process_groups.rendezvous import BIND_VARIABLE, Rendezvous
from backends.protocol import Array, Backend

KEYS = ("cpu:local_topology", "cpu:global_topology", "cpu:gloo")
"""Where XLA's clients exchange their devices and addresses."""
THREADS = 2
"""One sums, which blocks it, while the other copies."""
INLINE = 1024
"""Elements from which XLA queues a sum; shorter ones would be computed by the thread that launches them."""
LEAVING_SECONDS = 10.0
"""How long a client that is made in vain may take to notice."""
AS_TEXT = "latin-1"
"""Any bytes are text in it."""
BY_ANOTHER_RANK = re.compile(r"\bGloo [\w -]+ failed: (?:\[\S+:\d+\] )?(.*)")


def join_jax(backend: Backend, where: Rendezvous) -> Group:
    """Meet the other processes; raises GroupError if they do not come in time."""
    if where.rank is None:
        raise BackendError("RANK is not set: JAX's processes know their ranks before they meet")
    import jax

    interface = os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_towards(where.address))
    bind = os.environ.get(BIND_VARIABLE, where.address)
    meeting = meet(where.rank, where.size, where.address, where.port, bind, where.timeout)
    try:
        with _nothing_printed():
            return _connected(jax, backend, meeting, interface)
    except jax.errors.JaxRuntimeError as error:
        raise GroupError(f"rank {where.rank} cannot join the other ranks: {_line(error)}") from error
    finally:
        meeting.close()


@final
class JAXGroup:
    """Programs that sum, on a client that has a device in each process."""

    transport = "gloo"

    def __init__(self, jax: Any, client: Any, rank: int, hosts: tuple[str, ...]) -> None:
        from backends.jax.arguments import Pending

        self._jax, self._pending = jax, Pending
        self.rank, self.size, self.hosts = rank, len(hosts), hosts
        (own,) = client.local_devices()
        self._place = jax.sharding.SingleDeviceSharding(own)
        in_order = sorted(client.devices(), key=lambda device: device.process_index)
        mesh = jax.sharding.Mesh(np.array(in_order), ("rank",))
        shares, whole = jax.sharding.PartitionSpec("rank"), jax.sharding.PartitionSpec()
        self._shares = jax.sharding.NamedSharding(mesh, shares)
        self._program = jax.jit(jax.shard_map(_exchange, mesh=mesh, in_specs=shares, out_specs=whole))
        self._sums = 0
        self._last: Sequence[Array] = ()
        """What the last sum gives: those before it are done earlier."""

    def sum(self, x: Array) -> Array:
        # What is summed is no part of a step that is compiled as one.
        arrays = [one.value if isinstance(one, self._pending) else one for one in tree_leaves(x)]
        self._sums += 1
        agree_on_exchange(self.sum_on_host, self.rank, self.hosts, self._sums, arrays)
        with _failures():
            summed = self._sum(arrays)
            back = iter([self._jax.device_put(one, array.sharding) for one, array in zip(summed, arrays, strict=True)])
        return tree_map(lambda _: next(back), x)

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        with _failures():
            (summed,) = self._sum([np.array(x)])
            return np.array(summed)

    def waitall(self) -> None:
        with _failures():
            self._jax.block_until_ready(self._last)

    def close(self) -> None:
        # Waits for all processes: the other processes would miss one that leaves earlier.
        self.sum_on_host(np.zeros(1, dtype=np.float32))

    def _sum(self, arrays: Sequence[Array]) -> Sequence[Array]:
        if not arrays:
            return []
        for array in arrays:
            check_terms([array])
        # The rows of all processes are one array; a number is a row of one.
        rows = [array if array.ndim else array.reshape(1) for array in arrays]
        shares = [self._share(row) for row in self._jax.device_put(rows, self._place)]
        sums = [one.addressable_data(0) for one in self._program(*shares)]
        self._last = sums[-1:]
        return [one if array.ndim else one[0] for one, array in zip(sums, arrays, strict=True)]

    def _share(self, rows: Array) -> Array:
        length, *others = rows.shape
        return self._jax.make_array_from_single_device_arrays((self.size * length, *others), self._shares, [rows])


def by_another_rank(error: BaseException) -> GroupError | None:
    """Return what a failure means if another rank is the cause: whoever waits for a value finds what its sum raised."""
    failed = BY_ANOTHER_RANK.search(message_of(error))
    return failed and GroupError(f"another rank is gone or does not answer (gloo: {failed[1]})")


@contextmanager
def _failures() -> Iterator[None]:
    """Raise GroupError if another rank is the cause of a failure, ComputationError if not."""
    try:
        yield
    # JAX's own are RuntimeErrors.
    except (ValueError, RuntimeError) as error:
        raise by_another_rank(error) or ComputationError(f"jax between processes: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _exchange(*arrays: Array) -> tuple[Array, ...]:
    """Sum arrays over the ranks: those of one type together, because each exchange has a fixed cost."""
    import jax

    sums: dict[int, Array] = {}
    by_type = sorted(range(len(arrays)), key=lambda place: str(arrays[place].dtype))
    for _, places in groupby(by_type, key=lambda place: arrays[place].dtype):
        some = list(places)
        # With an empty array beside others, XLA 0.11 crashes.
        full = [arrays[place].reshape(-1) for place in some if arrays[place].size]
        joined = jax.numpy.concatenate(full or [arrays[some[0]].reshape(-1)])
        missing = max(0, INLINE - joined.size)
        summed = jax.lax.psum(jax.numpy.pad(joined, (0, missing)), "rank")
        start = 0
        for place in some:
            length = arrays[place].size
            sums[place] = summed[start : start + length].reshape(arrays[place].shape)
            start += length
    return tuple(sums[place] for place in range(len(arrays)))


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Drop what is written to standard output, where gloo says that it is connected."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _in_thread(make: Callable[[], Group]) -> "Future[Group]":
    """Do something in a thread that the process does not wait for when it ends."""
    future: Future[Group] = Future()

    def run() -> None:
        try:
            future.set_result(make())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, name="joining", daemon=True).start()
    return future


def _connected(jax: Any, backend: Backend, meeting: Meeting, interface: str) -> Group:
    """Make the client, together with the other processes; gloo connects them when they sum for the first time."""
    from jaxlib import _jax, xla_client

    # A socket without a file or port.
    address = f"unix-abstract:parallel-core-{secrets.token_hex(8)}"
    service = _jax.get_distributed_runtime_service(address, 1)
    agent = _jax.get_distributed_runtime_client(address, 0, shutdown_on_destruction=False)
    agent.connect()

    def make() -> Group:
        with pool_of(THREADS):
            client = xla_client.make_cpu_client(
                asynchronous=backend.engine == "async",
                distributed_client=agent,
                node_id=meeting.rank,
                num_nodes=meeting.size,
                collectives=_jax.make_gloo_tcp_collectives(agent, None, interface),
                num_devices=1,
            )
        group = JAXGroup(jax, client, meeting.rank, meeting.hosts)
        group.sum_on_host(np.zeros(1, dtype=np.float32))
        return group

    def keys() -> dict[str, str]:
        return {key: value.decode(AS_TEXT) for where in KEYS for key, value in agent.key_value_dir_get_bytes(where)}

    def add(key: str, value: str) -> None:
        agent.key_value_set_bytes(key, value.encode(AS_TEXT))

    making = _in_thread(make)
    try:
        # Its failure ends the wait for the other processes.
        meeting.pass_on(keys, add, lambda: making.done() and making.result() is not None)
        return making.result()
    finally:
        # In this order: the agent would end the process if it missed the service.
        agent.shutdown()
        service.shutdown()
        # Without them it fails. If Python ended first, XLA would abort in a thread that is taken from it.
        wait([making], LEAVING_SECONDS)
