"""PyTorch behind the `Backend` protocol. Read it beside `mxnet_backend.py`: same verbs, same order.

On a CPU, PyTorch has no queue: an operator runs on the calling thread and returns when it is done (the GIL is
released meanwhile). So the asynchronous engine brings its own streams, a thread for computation and one for copies
per logical device, and a value is a promise. The synchronous engine is plain eager PyTorch, and values are tensors.
On CUDA, PyTorch enqueues by itself: with whole GPUs `launch` is `fn(*args)` on either engine (`cuda_direct.py`). GPUs
beside CPU devices, and several logical devices on one GPU, get workers as CPU devices do (`cuda_workers.py`).
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, final

import numpy as np

from backends.arrays import check_equal, row_ranges, sum_shard, tree_leaves, tree_map
from backends.devices import Device, Wanted, choose_devices, same_memory
from backends.errors import BackendError, ComputationError
from backends.host import check_workers, cores_of, threads_for
from backends.installation.importing import import_framework
from backends.protocol import Array, Engine, FrameworkSettings, HostArray
from backends.torch.cuda.copies import CudaCopies
from backends.torch.cuda.direct import DirectCuda
from backends.torch.cuda.graphs import CudaGraphs
from backends.torch.cuda.threads import CudaWorkers
from backends.torch.streams.pool import PooledStream
from backends.torch.streams.promise import Announcing, Promise, promises, resolve
from backends.torch.streams.source_queue import SourceQueue
from backends.torch.streams.worker import WorkerStream, submit_collective
from backends.variants import COPY_ON_COMPUTE_QUEUE, GRAPH_REPLAY, TF32, check_device_kind, choose_variants

__all__ = ["TorchBackend", "settle_cuda"]


SHARDED_BYTES = 2**21
"""From here on summing in shards, by all devices, is faster than by the first one alone."""


@final
class TorchBackend:
    """PyTorch on logical CPU devices, on GPUs, or on both."""

    name = "torch"

    def __init__(
        self,
        devices: Wanted,
        device_kind: str,
        engine: Engine | None,
        threads_per_device: int | None,
        workers_per_device: int = 1,
        variants: Sequence[str] = (),
    ) -> None:
        self.engine: Engine = engine or "async"
        check_workers(self.name, self.engine, workers_per_device)
        self.variants = choose_variants(self.name, self.engine, variants)
        on_compute_queue = COPY_ON_COMPUTE_QUEUE.name in self.variants
        self.workers_per_device = workers_per_device
        torch = import_framework("torch", {}, requirement="torch 2 or later")
        from backends.torch import ops as torch_ops

        self._torch, self.ops = torch, torch_ops
        self.version: str = torch.__version__
        found: int = torch.cuda.device_count()
        self.devices, note = choose_devices(self.name, device_kind, devices, found, workers_per_device)
        on_cpus = [device for device in self.devices if device.kind == "cpu"]
        gpus = [device.index for device in self.devices if device.kind == "gpu"]
        for kind in dict.fromkeys(device.kind for device in self.devices):
            check_device_kind(self.name, kind, variants)
        if on_compute_queue and on_cpus and gpus:
            raise BackendError(f"torch has no variant {COPY_ON_COMPUTE_QUEUE.name!r} on CPUs and GPUs together")
        self.threads_per_device = threads_per_device or threads_for(len(on_cpus), workers_per_device)
        self._failure: ComputationError | None = None
        limit_threads = partial(_limit_threads, torch, self.threads_per_device)
        limit_threads()
        whole_gpus = not on_cpus and len(set(gpus)) == len(gpus)
        self._threaded = self.engine == "async" and not whole_gpus
        self.cores: Sequence[set[int]] = cores_of(
            self.devices, workers_per_device * self.threads_per_device if self._threaded else None
        )
        self.settings: FrameworkSettings = (
            settle_cuda(torch, self.engine == "sync", TF32.name in self.variants) if gpus else {}
        )
        self._direct = None if self._threaded or not gpus else DirectCuda(torch, sorted(set(gpus)), on_compute_queue)
        self._graphs = CudaGraphs(torch) if GRAPH_REPLAY.name in self.variants else None
        self.streams: tuple[WorkerStream, ...] = ()
        if self._threaded:
            shares = dict(zip(self.devices, self.cores, strict=False))
            # Two kinds of stream, for where one worker does it its order alone protects, and costs nothing to count.
            pool = partial(PooledStream, workers=workers_per_device) if workers_per_device > 1 else WorkerStream
            self._compute = {d: pool(d, f"{d} compute", shares[d], limit_threads) for d in on_cpus}
            self._copy = {d: WorkerStream(d, f"{d} copy", shares[d], limit_threads) for d in on_cpus}
            self.streams = (*self._compute.values(), *self._copy.values())
            self._queues_of_copies: Mapping[Device, WorkerStream | SourceQueue | CudaCopies] = (
                {d: SourceQueue(d, self._compute) for d in on_cpus} if on_compute_queue else self._copy
            )
        self._gpu_workers: CudaWorkers | None = None
        if self._threaded and gpus:
            self._gpu_workers = CudaWorkers(torch, self.devices, self._copy, limit_threads, on_compute_queue)
            self._compute.update(self._gpu_workers.compute)
            self._queues_of_copies = self._gpu_workers.copies
            self.streams += self._gpu_workers.streams
        self.scheduler = "; ".join(filter(None, (_scheduler(self.engine, bool(on_cpus), bool(gpus), whole_gpus), note)))

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        if self._failure:
            self._refuse()
        if self._graphs and (isinstance(fn, Announcing) or fn in (self.ops.sgd, self.ops.sgd_while_finite)):
            fn = partial(self._graphs.issue, fn)
        if self._threaded:
            return self._stream(self._compute, args).submit(fn, *args)
        try:
            if self._direct:
                self._direct.await_on_host(args)
            return fn(*args)
        except Exception as error:
            self._fail(error, "at launch")

    def wait(self, x: Array) -> Array:
        if self._failure:
            self._refuse()
        for leaf in tree_leaves(x):
            try:
                if self._threaded:
                    resolve(leaf)
                elif self._direct:
                    self._direct.wait(leaf)
            except Exception as error:
                self._fail(error, f"on {leaf.device}")
        return x

    def waitall(self) -> None:
        if self._failure:
            self._refuse()
        if self._threaded:
            for wait_until_done in [stream.barrier() for stream in self.streams]:
                wait_until_done()
            for stream in self.streams:
                if stream.error is not None:
                    self._fail(stream.error, f"on {stream.device}")
        elif self._direct:
            for device in self.devices:
                if device.kind == "cpu":
                    continue
                try:
                    self._torch.cuda.synchronize(device.index)
                except Exception as error:
                    self._fail(error, f"on {device}")

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        if self._failure:
            self._refuse()
        if self._threaded:
            # On the destination's copy thread, by default: the source's threads, and so its cores, go on computing.
            if out is None:
                return self._queues_of_copies[device].submit(_clone, x)
            return self._queues_of_copies[device].submit_consuming(_overwrite, out, x)
        try:
            if self._direct:
                direct = self._direct
                return tree_map(lambda leaf, *outs: direct.copy(leaf, device, *outs), *_operands(x, out))
            return _clone(x) if out is None else _overwrite(out, x)
        except Exception as error:
            self._fail(error, f"on {device}")

    def split_and_load(self, x: np.ndarray, devices: Sequence[Device]) -> tuple[Array, ...]:
        return tuple(
            self.asarray(x[rows], device)
            for rows, device in zip(row_ranges(len(x), len(devices)), devices, strict=True)
        )

    def allreduce(self, xs: Sequence[Array]) -> tuple[Array, ...]:
        if self._failure:
            self._refuse()
        if self._gpu_workers:
            return self._gather_and_broadcast(*xs)
        if self._direct:
            return self._sum_between_gpus(self._direct, xs)
        if not self._threaded:
            return self.launch(_sum_in_shards, tuple(xs))
        # On the copy threads, so that what is ready can be reduced while the rest is still being computed.
        return submit_collective([self._stream(self._copy, (x,)) for x in xs], _sum_own_shard, tuple(xs))

    def asarray(self, x: HostArray, device: Device) -> Array:
        if self._failure:
            self._refuse()
        return tree_map(lambda leaf: self._load(leaf, device), x)

    def to_numpy(self, x: Array) -> Any:
        self.wait(x)
        return tree_map(lambda leaf: leaf.detach().to("cpu", copy=True).numpy(), resolve(x))

    def _load(self, x: np.ndarray, device: Device) -> Array:
        if self._direct:
            return self._direct.load(x, device)
        if not self._threaded:
            return self._torch.tensor(x)
        tensor = self._torch.tensor(x)
        if self._gpu_workers:
            return self._gpu_workers.loads.load(tensor, device)
        promise = Promise(device)
        promise.fulfil(tensor)
        return promise

    def _sum_between_gpus(self, direct: DirectCuda, xs: Sequence[Array]) -> tuple[Array, ...]:
        try:
            if direct.sum_between_peers(xs):
                return tuple(xs)
            return direct.gather_and_broadcast(_add_into, *xs)
        except Exception as error:
            self._fail(error, "at launch")

    def _gather_and_broadcast(self, first: Array, *others: Array) -> tuple[Array, ...]:
        home = _device_of(first)
        terms = [x if same_memory(home, _device_of(x)) else self.copy_to(x, home) for x in others]
        total = self._compute[home].submit_consuming(_add_into, first, *terms)
        return (total, *(self.copy_to(total, _device_of(x), out=x) for x in others))

    def _stream(self, streams: Mapping[Device, WorkerStream], args: Iterable[Array]) -> WorkerStream:
        for promise in promises(*args):
            return streams[promise.device]
        raise BackendError("launch needs an array of this backend among its arguments: it says the device")

    def _fail(self, error: BaseException, place: str) -> NoReturn:
        if isinstance(error, ComputationError):
            # The group of processes has said already what went wrong.
            self._failure = error
            raise error
        reason = next(iter(str(error).strip().splitlines()), "no reason given")
        self._failure = ComputationError(f"torch {place}: {type(error).__name__}: {reason}")
        raise self._failure from error

    def _refuse(self) -> NoReturn:
        raise ComputationError(f"torch refuses further work after a failure ({self._failure}): load the backend again")


def _scheduler(engine: Engine, on_cpus: bool, on_gpus: bool, whole_gpus: bool) -> str:
    on_cuda = "CUDA streams: PyTorch itself enqueues on each GPU"
    on_threads = "worker threads of parallel-core: eager PyTorch has no queue on a CPU"
    eager = "none: eager PyTorch computes on the calling thread and has no queue on a CPU"
    if engine == "sync":
        blocking = f"{on_cuda}, and CUDA_LAUNCH_BLOCKING waits after every kernel"
        return ", and ".join(filter(None, (blocking if on_gpus else "", eager if on_cpus else "")))
    if whole_gpus or not on_gpus:
        return on_cuda if on_gpus else on_threads
    also = " and to compute on CPUs, where eager PyTorch has no queue" if on_cpus else ""
    return f"worker threads of parallel-core, to issue to a CUDA stream for each device on a GPU{also}"


def _device_of(x: Array) -> Device:
    return next(promise.device for promise in promises(x))


def _operands(x: Array, out: Array | None) -> tuple[Array, ...]:
    return (x,) if out is None else (x, out)


def _limit_threads(torch: Any, threads: int) -> None:
    # The setting is the calling thread's own: without it, every worker would use all cores. But a thread's first use of
    # OpenMP would replace it by what was set last, in any thread; asking for the number counts as first use.
    torch.get_num_threads()
    torch.set_num_threads(threads)


def _clone(x: Array) -> Array:
    # `.to(device)` would return the same tensor: on one CPU, two devices would share their parameters.
    return tree_map(lambda leaf: leaf.clone(), x)


def _overwrite(out: Array, x: Array) -> Array:
    return tree_map(lambda target, source: target.copy_(source), out, x)


def _add_into(first: Array, *others: Array) -> Array:
    return tree_map(_add_terms, first, *others)


def _add_terms(total: Array, *terms: Array) -> Array:
    check_equal((total, *terms))
    for term in terms:
        total.add_(term)
    return total


def _sum_in_shards(xs: tuple[Array, ...]) -> tuple[Array, ...]:
    _sum_own_shard(xs, 0, shards=1)
    return xs


def _sum_own_shard(xs: tuple[Array, ...], shard: int, shards: int | None = None) -> None:
    # Checked by every device before any of them writes.
    terms = list(zip(*map(tree_leaves, xs), strict=True))
    for same in terms:
        check_equal(same)
    # A short sum is done before a second thread has woken up.
    if sum(same[0].nbytes for same in terms) < SHARDED_BYTES:
        shards = 1
    if shard >= (shards := shards or len(xs)):
        return
    for same in terms:
        if all(x.is_contiguous() for x in same):
            sum_shard([x.view(-1) for x in same], shard, shards)
        elif shard == 0:
            _add_terms(*same)
            for x in same[1:]:
                x.copy_(same[0])


BLOCKING = "CUDA_LAUNCH_BLOCKING"


def settle_cuda(torch: Any, blocking: bool, tf32: bool) -> FrameworkSettings:
    """Set whether every kernel is waited for, and whether TensorFloat-32 may stand in for float32; return both.

    Raises BackendError where CUDA has been started with the other value of CUDA_LAUNCH_BLOCKING.
    """
    # CUDA reads this when it starts, which is not when PyTorch is imported.
    wanted, found = str(int(blocking)), os.environ.get(BLOCKING, "0")
    if found != wanted and torch.cuda.is_initialized():
        raise BackendError(f"CUDA was started with {BLOCKING}={found}, and this engine needs {wanted}: start afresh")
    os.environ[BLOCKING] = wanted
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    told = str(tf32)
    return {
        BLOCKING: wanted,
        "torch.backends.cuda.matmul.allow_tf32": told,
        "torch.backends.cudnn.allow_tf32": told,
    }
