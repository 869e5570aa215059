"""A made-up `torch` for machines without a GPU: its GPUs are names, and its streams write down who
waits for whom.

Everything is computed on the CPU, later than it is issued (`made_up_lag.py`), and nothing here
shows that a GPU would obey. What it does show is whether two accesses to the same memory, one of
them writing, are ordered by what a GPU would go by: the order within a stream, waits for events,
and what the host has seen to be done. Each stream counts its operations, and knows of every other
stream up to which count it has waited for it; an event is a copy of that knowledge. An access that
does not know of an earlier one that it conflicts with is a race, whoever would win it.

Memory that is let go goes back to the stream that allocated it, as PyTorch's does, and that is an
access by writing. It comes after all that was issued by then to the streams that were recorded as
its users.
"""

import os
import threading
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from random import Random
from typing import Any, NamedTuple

import torch

from tests.backends.torch.cuda.made_up_graphs import (
    GraphAccess,
    MadeUpGraph,
    Part,
    address,
    part_of,
    recorded_here,
    recording,
    tensors,
)
from tests.backends.torch.cuda.made_up_lag import Lag, Lagging

Known = Counter[int]
"""By stream, how many of its first operations are known to be done."""
GRADIENT = torch.Tensor.grad.__get__  # type: ignore[attr-defined]


class MadeUpEvent:
    """What a stream knew when it was recorded last."""

    def __init__(self, cuda: "Cuda", gpu: int, known: Known, issued: Known | None = None) -> None:
        self.cuda, self.gpu, self.known = cuda, gpu, known
        self.issued = issued or Known()

    def record(self, stream: "MadeUpStream") -> None:
        self.cuda.check(stream.gpu)
        with self.cuda.lock:
            self.gpu, self.known = stream.gpu, Known(stream.known)
            self.issued = Known(stream.issued)

    def synchronize(self) -> None:
        self.cuda.check(self.gpu)
        with self.cuda.lock:
            self.cuda.lag.compute(self.issued)
            self.cuda.seen_done |= self.known

    def query(self) -> bool:
        """Say by chance that it has come; the host then knows it."""
        if self.cuda.random.random() < 0.5:
            return False
        self.synchronize()
        return True


class MadeUpStream(MadeUpEvent):
    """A stream; what it knows and has been issued grows."""

    def wait_event(self, event: MadeUpEvent) -> None:
        self.cuda.check(self.gpu)
        with self.cuda.lock:
            self.known |= event.known
            self.issued |= event.issued

    def record_event(self) -> MadeUpEvent:
        self.cuda.check(self.gpu)
        with self.cuda.lock:
            return MadeUpEvent(self.cuda, self.gpu, Known(self.known), Known(self.issued))


class Access(NamedTuple):
    """An operation, by name and by its number on its stream, that reads or writes some memory."""

    part: Part
    stream: MadeUpStream
    number: int
    writes: bool
    name: str


class Cuda:
    """What `torch.cuda` has, for some GPUs that are names; `races` are in words."""

    def __init__(self, gpus: int, seed: int) -> None:
        self.lock = threading.RLock()
        self.random = Random(seed)
        self.lag = Lag(self)
        self.races: list[str] = []
        self.seen_done = Known()
        self.gpus = gpus
        self.default_streams = [MadeUpStream(self, gpu, Known()) for gpu in range(gpus)]
        self.of_thread = threading.local()
        # By address of memory: its GPU, the stream that allocated it, the accesses to it, how many
        # tensors use it, and the streams that were recorded as its users.
        self.on_gpu: dict[int, int] = {}
        self.allocated_on: dict[int, MadeUpStream] = {}
        self.accesses: dict[int, list[Access]] = defaultdict(list)
        self.users: Counter[int] = Counter()
        self.recorded: dict[int, set[MadeUpStream]] = defaultdict(set)
        # An address that came back would be taken for the memory that was there before.
        self.kept: dict[int, Any] = {}
        self.dropped_by_others: deque[int] = deque()
        self.started = False
        self.events = 0
        self.broken: set[int] = set()
        self.counted_with: str | None = "not counted"
        self.is_recording = False
        self.graphs: list[MadeUpGraph] = []
        self.graph = recording
        self.CUDAGraph = partial(MadeUpGraph, self)

    def device_count(self) -> int:
        self.counted_with = os.environ.get("CUDA_LAUNCH_BLOCKING")
        return self.gpus

    def init(self) -> None:
        self.started = True

    def is_initialized(self) -> bool:
        return self.started

    def Stream(self, device: int) -> MadeUpStream:  # noqa: N802
        return MadeUpStream(self, range(self.gpus)[device], Known())

    def Event(self) -> MadeUpEvent:  # noqa: N802
        self.events += 1
        return MadeUpEvent(self, -1, Known())

    def set_stream(self, stream: MadeUpStream) -> None:
        self._current()[stream.gpu] = stream

    def current_stream(self, device: Any) -> MadeUpStream:
        return self._current()[device if isinstance(device, int) else device.index]

    def synchronize(self, device: int) -> None:
        self.current_stream(device).synchronize()

    @contextmanager
    def stream(self, stream: MadeUpStream) -> Iterator[None]:
        before = self.current_stream(stream.gpu)
        self.set_stream(stream)
        try:
            yield
        finally:
            self.set_stream(before)

    def _current(self) -> list[MadeUpStream]:
        if not hasattr(self.of_thread, "streams"):
            self.of_thread.streams = list(self.default_streams)
        return self.of_thread.streams  # type: ignore[no-any-return]

    def check(self, gpu: int) -> None:
        """Raise what CUDA raises, whatever it is asked, after an error on a GPU."""
        if gpu in self.broken:
            raise RuntimeError(
                "CUDA error: made up\nCompile with TORCH_USE_CUDA_DSA to enable device-side "
                "assertions."
            )

    def issued(self) -> set[str]:
        """Return the names of all accesses."""
        with self.lock:
            return {access.name for access in self._all_accesses()}

    def unfinished(self) -> set[str]:
        """Return the names of the accesses of which the host does not know that they are done."""
        names = set()
        with self.lock:
            for access in self._all_accesses():
                if self.seen_done[id(access.stream)] < access.number:
                    names.add(access.name)
        return names

    def _all_accesses(self) -> Iterator[Access]:
        return chain.from_iterable(self.accesses.values())

    def forget(self) -> None:
        """Forget all accesses, but not who waited for whom."""
        with self.lock:
            self.accesses.clear()

    def access(
        self,
        part: Part,
        writes: bool,
        name: str,
        stream: MadeUpStream | None,
        users: Collection[MadeUpStream] = (),
    ) -> None:
        """Note an access, and a race with each earlier one that it conflicts with and does not know
        of. It waits for all that is known to the streams `users`; the host has no stream.
        """
        graph = recorded_here()
        if graph is not None:
            graph.accesses.append(GraphAccess(part, writes, name))
            return
        known = self.seen_done if stream is None else stream.known | self.seen_done
        waited_for = Known(known)
        for user in users:
            waited_for |= user.known
        for earlier in self.accesses[part.memory]:
            overlap = part.start < earlier.part.stop and earlier.part.start < part.stop
            conflict = overlap and (writes or earlier.writes)
            # A stream keeps its operations in order.
            is_ordered = (
                earlier.stream is stream or waited_for[id(earlier.stream)] >= earlier.number
            )
            if conflict and not is_ordered:
                self.races.append(f"{name} does not wait for {earlier.name}")
        if stream is not None:
            number = known[id(stream)] + 1
            stream.known = known | Known({id(stream): number})
            self.accesses[part.memory].append(Access(part, stream, number, writes, name))

    def used(self, x: torch.Tensor, gpu: int | None) -> None:
        """Count a tensor among the users of its memory, which belongs to the stream that first uses
        it.
        """
        memory = address(x)
        if memory not in self.kept:
            self.kept[memory] = x.untyped_storage()
            if gpu is not None:
                self.on_gpu[memory] = gpu
                # A graph's memory is its own.
                if not recorded_here():
                    self.allocated_on[memory] = self.current_stream(gpu)
        self.users[memory] += 1
        weakref.finalize(x, self.dropped, memory).atexit = False

    def dropped(self, memory: int) -> None:
        # A thread of gloo's drops tensors too, and the thread that has the lock may be waiting for
        # that one.
        if isinstance(threading.current_thread(), threading._DummyThread):
            self.dropped_by_others.append(memory)
            return
        with self.lock:
            self._drop(memory)
            while self.dropped_by_others:
                self._drop(self.dropped_by_others.popleft())

    def _drop(self, memory: int) -> None:
        self.users[memory] -= 1
        if not self.users[memory] and memory in self.allocated_on:
            users = self.recorded.pop(memory, set())
            whole = Part(memory, 0, 2**64)
            self.access(whole, True, "the next use of its memory", self.allocated_on[memory], users)


def tensor_class(cuda: Cuda) -> type[torch.Tensor]:
    """Make a class of tensors that know their GPU, and whose operators note what they access."""

    class Tensor(torch.Tensor):
        @property
        def is_cuda(self) -> bool:
            return address(self) in cuda.on_gpu

        @property
        def device(self) -> torch.device:
            gpu = cuda.on_gpu.get(address(self))
            return torch.device("cpu" if gpu is None else f"cuda:{gpu}")

        def record_stream(self, stream: MadeUpStream) -> None:
            assert self.is_cuda
            cuda.recorded[address(self)].add(stream)

        @classmethod
        def __torch_function__(
            cls,
            func: Any,
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.Tensor.to and args[0].is_cuda:
                # From one memory to another, though both are the host's here.
                kwargs = {**kwargs, "copy": True}
            # What is recorded in a graph is not computed.
            lagging = nullcontext() if recorded_here() else Lagging(cuda.lag)
            with cuda.lock:
                with lagging:
                    result = super().__torch_function__(func, types, args, kwargs)
                if func == GRADIENT and result is not None:
                    # PyTorch has made the gradient as a plain tensor.
                    result = result.as_subclass(cls)
                    cuda.used(result, cuda.on_gpu.get(address(args[0])))
                elif func is torch._foreach_copy_:
                    for out, x in zip(*args, strict=True):
                        note_accesses(cuda, "copy_", (out, x), {"non_blocking": True}, out)
                else:
                    note_accesses(cuda, func.__name__, args, kwargs, result)
            return result

    return Tensor


class MadeUpTorch:
    """PyTorch, but for its GPUs; tensors remember whose they are."""

    def __init__(self, gpus: int, seed: int) -> None:
        self.cuda = Cuda(gpus, seed)
        self.own = tensor_class(self.cuda)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def tensor(self, x: Any, device: str = "cpu") -> Any:
        return self._new(torch.tensor(x), gpu_named(device))

    def empty(self, size: Any, dtype: torch.dtype, **_: bool) -> Any:
        return self._new(torch.empty(size, dtype=dtype), None)

    def empty_like(self, x: Any, device: str | None = None, **kwargs: Any) -> Any:
        # Page-locked memory is like any other here.
        kwargs.pop("pin_memory", None)
        with torch._C.DisableTorchFunctionSubclass():
            # Not just anything: labels are looked up while a graph is recorded, too.
            filling = float("nan") if x.is_floating_point() else 0
            plain = torch.empty_like(x, **kwargs).fill_(filling)
        gpu = x.device.index if device is None else gpu_named(device)
        return self._new(plain, gpu)

    def _new(self, plain: Any, gpu: int | None) -> Any:
        with self.cuda.lock:
            x = plain.as_subclass(self.own)
            self.cuda.used(x, gpu)
        return x


def gpu_named(device: str) -> int | None:
    """Return the index of the GPU that a name like "cuda:1" means; None for "cpu"."""
    return None if device == "cpu" else int(device.removeprefix("cuda:"))


def note_accesses(
    cuda: Cuda, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """Write down what an operator reads and writes; what gives a view of its argument does
    neither.
    """
    if isinstance(result, tuple):
        for part in result:
            note_accesses(cuda, name, args, kwargs, part)
    if not isinstance(result, torch.Tensor):
        return
    arguments = tensors(args)
    read_memories = [address(x) for x in arguments]
    result_memory = address(result)
    is_view = result_memory in read_memories
    # `requires_grad_` is a mark, and writes nothing.
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    # The last is the source of a copy, on whose current stream it runs.
    gpus = [cuda.on_gpu[memory] for memory in read_memories if memory in cuda.on_gpu]
    stream = cuda.current_stream(gpus[-1]) if gpus else None
    other_streams = [cuda.current_stream(gpu) for gpu in gpus if gpu != gpus[-1]]
    for gpu in gpus:
        cuda.check(gpu)
    if stream is not None:
        for other in other_streams:
            stream.wait_event(other.record_event())
    if in_place or not is_view:
        for part in {part_of(x) for x in arguments} - {part_of(result)}:
            cuda.access(part, False, name, stream)
        if in_place:
            cuda.access(part_of(result), True, name, stream)
    if not in_place:
        # `to` is how the host takes what it has waited for.
        is_on_host = not gpus or name == "to"
        cuda.used(result, None if is_on_host else gpus[-1])
        if not is_view:
            cuda.access(part_of(result), True, name, stream)
    if stream is not None:
        for other in other_streams:
            other.wait_event(stream.record_event())
        memories = [*read_memories, result_memory]
        with_host = any(memory not in cuda.on_gpu for memory in memories)
        if with_host and not kwargs.get("non_blocking"):
            stream.synchronize()
