"""PyTorch behind the `Backend` protocol. Read it beside `mxnet_backend.py`: same verbs, same order.

On a CPU, PyTorch has no queue: an operator runs on the calling thread and returns when it is done (the GIL is
released meanwhile). So the asynchronous engine brings its own streams, a thread for computation and one for copies
per logical device, and a value is a promise. The synchronous engine is plain eager PyTorch, and values are tensors.
On CUDA, PyTorch enqueues by itself: `launch` is `fn(*args)` on either engine.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, final

import numpy as np

from backends.device import HOST, Device, check_workers, choose_devices, core_numbers, core_shares, threads_for
from backends.environment import Settings, import_framework
from backends.errors import BackendError, ComputationError
from backends.nested import leaves, map_leaves
from backends.pooled_streams import PooledStream
from backends.promises import Promise, promises, resolve
from backends.protocol import Array, Engine, HostArray
from backends.shards import check_equal, sum_shard
from backends.source_queue import SourceQueue
from backends.splitting import row_ranges
from backends.streams import WorkerStream, submit_collective
from backends.variants import COPY_ON_COMPUTE_QUEUE, check_device_kind, choose_variants

__all__ = ["TorchBackend"]

SHARDED_BYTES = 2**21
"""From here on summing in shards, by all devices, is faster than by the first one alone."""


@final
class TorchBackend:
    """PyTorch on logical CPU devices, or on GPUs."""

    name = "torch"

    def __init__(
        self,
        devices: int,
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
        self.threads_per_device = threads_per_device or threads_for(devices, workers_per_device)
        torch = import_framework("torch", {}, requirement="torch 2 or later")
        from backends import torch_ops

        self._torch, self.ops = torch, torch_ops
        self.version: str = torch.__version__
        gpus: int = torch.cuda.device_count()
        self.devices = choose_devices(self.name, device_kind, devices, gpus, workers_per_device)
        check_device_kind(self.name, self.devices[0].kind, variants)
        self._cuda = self.devices[0].kind == "gpu"
        self.settings: Settings = self._settle_launch_blocking() if self._cuda else {}
        self._failure: ComputationError | None = None
        limit_threads = partial(_limit_threads, torch, self.threads_per_device)
        limit_threads()
        self.cores: Sequence[set[int]] = () if self._cuda else [set(core_numbers())] * devices
        self.streams: tuple[WorkerStream, ...] = ()
        if self._cuda:
            torch.backends.cudnn.allow_tf32 = False
            stream = torch.cuda.current_stream if on_compute_queue else torch.cuda.Stream
            self._cuda_copies = {device: stream(device.index) for device in self.devices}
            self._in_copy: deque[tuple[Any, Array]] = deque()
            self._touched_host: dict[int, Any] = {}
            self.scheduler = "CUDA streams: PyTorch itself enqueues on each GPU" + (
                ", and CUDA_LAUNCH_BLOCKING waits after every kernel" if self.engine == "sync" else ""
            )
        elif self.engine == "async":
            self.cores = core_shares(devices, workers_per_device * self.threads_per_device)
            shares = dict(zip(self.devices, self.cores, strict=True))
            # Two kinds of stream, for where one worker does it its order alone protects, and costs nothing to count.
            pool = partial(PooledStream, workers=workers_per_device) if workers_per_device > 1 else WorkerStream
            self._compute = {d: pool(d, f"{d} compute", shares[d], limit_threads) for d in self.devices}
            self._copy = {d: WorkerStream(d, f"{d} copy", shares[d], limit_threads) for d in self.devices}
            self.streams = (*self._compute.values(), *self._copy.values())
            self._queues_of_copies: Mapping[Device, WorkerStream | SourceQueue] = (
                {d: SourceQueue(d, self._compute) for d in self.devices} if on_compute_queue else self._copy
            )
            self.scheduler = "worker threads of parallel-core: eager PyTorch has no queue on a CPU"
        else:
            self.scheduler = "none: eager PyTorch computes on the calling thread and has no queue on a CPU"
        self._threaded = not self._cuda and self.engine == "async"

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        if self._failure:
            self._refuse()
        if self._threaded:
            return self._stream(self._compute, args).submit(fn, *args)
        try:
            if self._cuda:
                self._await_on_host(args)
            return fn(*args)
        except Exception as error:
            self._fail(error, "at launch")

    def wait(self, x: Array) -> Array:
        if self._failure:
            self._refuse()
        for leaf in leaves(x):
            try:
                if self._threaded:
                    resolve(leaf)
                elif self._cuda and leaf.is_cuda:
                    # The stream, not the tensor: PyTorch has no event per tensor.
                    self._torch.cuda.current_stream(leaf.device).synchronize()
                elif self._cuda:
                    self._await_on_host(leaf)
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
        elif self._cuda:
            for device in self.devices:
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
            if self._cuda:
                return map_leaves(lambda leaf, *outs: self._copy_on_cuda(leaf, device, *outs), *_operands(x, out))
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
        if self._cuda:
            return self._gather_and_broadcast(*xs)
        if not self._threaded:
            return self.launch(_sum_in_shards, tuple(xs))
        # On the copy threads, so that what is ready can be reduced while the rest is still being computed.
        return submit_collective([self._stream(self._copy, (x,)) for x in xs], _sum_own_shard, tuple(xs))

    def asarray(self, x: HostArray, device: Device) -> Array:
        if self._failure:
            self._refuse()
        return map_leaves(lambda leaf: self._load(leaf, device), x)

    def to_numpy(self, x: Array) -> Any:
        self.wait(x)
        return map_leaves(lambda leaf: leaf.detach().to("cpu", copy=True).numpy(), resolve(x))

    def _settle_launch_blocking(self) -> Settings:
        # CUDA reads this when it starts, which is not when PyTorch is imported.
        name, wanted = "CUDA_LAUNCH_BLOCKING", "1" if self.engine == "sync" else "0"
        found = os.environ.get(name, "0")
        if found != wanted and self._torch.cuda.is_initialized():
            raise BackendError(f"CUDA was started with {name}={found}, and this engine needs {wanted}: start afresh")
        os.environ[name] = wanted
        return {name: wanted}

    def _load(self, x: np.ndarray, device: Device) -> Array:
        if self._cuda and device == HOST:
            return self._torch.tensor(x).pin_memory()
        if self._cuda:
            return self._torch.tensor(x, device=f"cuda:{device.index}")
        tensor = self._torch.tensor(x)
        if not self._threaded:
            return tensor
        promise = Promise(device)
        promise.fulfil(tensor)
        return promise

    def _consume(self, fn: Callable[..., Array], x: Array, *args: Array) -> Array:
        # Copies out of `x` may be under way on streams of their own.
        for copied, source in self._in_copy:
            if source.is_cuda:
                self._torch.cuda.current_stream(source.device).wait_event(copied)
        return self.launch(fn, x, *args)

    def _gather_and_broadcast(self, first: Array, *others: Array) -> tuple[Array, ...]:
        home = next(device for device in self.devices if device.index == next(leaves(first)).device.index)
        total = self._consume(_add_into, first, *(self.copy_to(x, home) for x in others))
        return (total, *(self._consume(_overwrite, x, total) for x in others))

    def _stream(self, streams: Mapping[Device, WorkerStream], args: Iterable[Array]) -> WorkerStream:
        for promise in promises(*args):
            return streams[promise.device]
        raise BackendError("launch needs an array of this backend among its arguments: it says the device")

    def _copy_on_cuda(self, x: Array, device: Device, out: Array | None = None) -> Array:
        cuda = self._torch.cuda
        if out is None:
            out = self._empty_like(x, device)
        on_gpu = [tensor for tensor in (x, out) if tensor.is_cuda]
        on_host = [_address(tensor) for tensor in (x, out) if not tensor.is_cuda]
        copies = self._cuda_copies[Device("gpu", on_gpu[-1].device.index)]
        for tensor in on_gpu:
            copies.wait_stream(cuda.current_stream(tensor.device))
        for earlier in filter(None, map(self._touched_host.get, on_host)):
            copies.wait_event(earlier)
        with cuda.stream(copies):
            out.copy_(x, non_blocking=True)
        done = copies.record_event()
        self._touched_host.update(dict.fromkeys(on_host, done))
        if out.is_cuda:
            cuda.current_stream(out.device).wait_event(done)
        # PyTorch would reuse the source's memory as soon as the last reference goes, copied or not.
        self._in_copy.append((done, x))
        while self._in_copy and self._in_copy[0][0].query():
            self._in_copy.popleft()
        return out

    def _empty_like(self, x: Array, device: Device) -> Array:
        # Memory that is not page-locked would make the copy wait for all before it.
        if device == HOST:
            return self._torch.empty_like(x, device="cpu", pin_memory=True)
        return self._torch.empty_like(x, device=f"cuda:{device.index}")

    def _await_on_host(self, values: Any) -> None:
        # No stream orders what the host reads or writes; only the copy's own event says that it is done.
        for leaf in leaves(values):
            if isinstance(leaf, self._torch.Tensor) and not leaf.is_cuda:
                copied = self._touched_host.get(_address(leaf))
                if copied is not None:
                    copied.synchronize()

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


def _address(x: Array) -> int:
    return int(x.untyped_storage().data_ptr())


def _operands(x: Array, out: Array | None) -> tuple[Array, ...]:
    return (x,) if out is None else (x, out)


def _limit_threads(torch: Any, threads: int) -> None:
    # The setting is the calling thread's own: without it, every worker would use all cores. But a thread's first use of
    # OpenMP would replace it by what was set last, in any thread; asking for the number counts as first use.
    torch.get_num_threads()
    torch.set_num_threads(threads)


def _clone(x: Array) -> Array:
    # `.to(device)` would return the same tensor: on one CPU, two devices would share their parameters.
    return map_leaves(lambda leaf: leaf.clone(), x)


def _overwrite(out: Array, x: Array) -> Array:
    return map_leaves(lambda target, source: target.copy_(source), out, x)


def _add_into(first: Array, *others: Array) -> Array:
    return map_leaves(_add_terms, first, *others)


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
    terms = list(zip(*map(leaves, xs), strict=True))
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
