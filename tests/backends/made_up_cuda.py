"""A made-up `torch` for machines without a GPU: its GPUs are names, and its streams only write down who waits for whom.

Everything is computed on the CPU at once, by whichever thread issues it, so nothing here shows that a GPU would obey.
What it does show is whether two accesses to the same memory, one of them writing, are ordered by what a GPU would go
by: the order within a stream, waits for events, and what the host has seen to be done. Each stream counts its
operations, and knows of every other stream up to which count it has waited for it; an event is a copy of that
knowledge. An access that does not know of an earlier one that it conflicts with is a race, whoever would win it.

Memory that is let go goes back to the stream that allocated it, as PyTorch's does, and that is an access by writing.
"""

import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import torch

Known = Counter[int]


class MadeUpStream:
    """A stream that computes nothing."""

    def __init__(self, cuda: "Cuda") -> None:
        self.cuda, self.known = cuda, Known()

    def wait_event(self, event: "MadeUpEvent") -> None:
        with self.cuda.lock:
            self.known |= event.known

    def wait_stream(self, other: "MadeUpStream") -> None:
        self.wait_event(other.record_event())

    def record_event(self) -> "MadeUpEvent":
        with self.cuda.lock:
            return MadeUpEvent(self.cuda, Known(self.known))


class MadeUpEvent:
    """What a stream knew when it was recorded."""

    def __init__(self, cuda: "Cuda", known: Known) -> None:
        self.cuda, self.known = cuda, known

    def synchronize(self) -> None:
        with self.cuda.lock:
            self.cuda.seen_done |= self.known

    def query(self) -> bool:
        """Say by chance that it has come; the host then knows it."""
        if self.cuda.random.random() < 0.5:
            return False
        self.synchronize()
        return True


class Cuda:
    """What `torch.cuda` has, for some GPUs that are names; `races` are in words."""

    def __init__(self, gpus: int, seed: int) -> None:
        self.lock = threading.RLock()
        self.random = Random(seed)
        self.races: list[str] = []
        self.seen_done = Known()
        self.gpus = gpus
        self.here = threading.local()
        self.on_gpu: set[int] = set()
        self.allocated_on: dict[int, MadeUpStream] = {}
        self.accesses: dict[int, list[tuple[MadeUpStream, int, bool, str]]] = defaultdict(list)
        self.users: Counter[int] = Counter()
        # An address that came back would be taken for the memory that was there before.
        self.kept: dict[int, Any] = {}

    def device_count(self) -> int:
        return self.gpus

    def is_initialized(self) -> bool:
        return False

    def Stream(self, device: int) -> MadeUpStream:  # noqa: N802
        assert device < self.gpus
        return MadeUpStream(self)

    def set_stream(self, stream: MadeUpStream) -> None:
        self.here.stream = stream

    def current_stream(self, device: object = None) -> MadeUpStream:
        del device
        return self.here.stream  # type: ignore[no-any-return]

    @contextmanager
    def stream(self, stream: MadeUpStream) -> Iterator[None]:
        before = getattr(self.here, "stream", None)
        self.here.stream = stream
        yield
        self.here.stream = before

    def access(self, memory: int, writes: bool, name: str, stream: MadeUpStream | None) -> None:
        """Note a race where the access does not know of an earlier one that it conflicts with."""
        known = self.seen_done if stream is None else stream.known | self.seen_done
        for earlier, number, wrote, what in self.accesses[memory]:
            if (writes or wrote) and earlier is not stream and known[id(earlier)] < number:
                self.races.append(f"{name} does not wait for {what}")
        if stream is not None:
            stream.known = known | Known({id(stream): known[id(stream)] + 1})
            self.accesses[memory].append((stream, stream.known[id(stream)], writes, name))

    def used(self, x: torch.Tensor, stream: MadeUpStream | None, on_gpu: bool) -> None:
        """Count a tensor among the users of its memory, which belongs to the stream that first uses it."""
        memory = address(x)
        if memory not in self.kept:
            self.kept[memory] = x.untyped_storage()
            if on_gpu:
                self.on_gpu.add(memory)
                if stream is not None:
                    self.allocated_on[memory] = stream
        self.users[memory] += 1
        weakref.finalize(x, self.dropped, memory).atexit = False

    def dropped(self, memory: int) -> None:
        with self.lock:
            self.users[memory] -= 1
            if not self.users[memory] and memory in self.allocated_on:
                self.access(memory, True, "the next use of its memory", self.allocated_on[memory])


class MadeUpTorch:
    """PyTorch, but for its GPUs; tensors remember whose they are."""

    def __init__(self, gpus: int, seed: int) -> None:
        self.cuda = cuda = Cuda(gpus, seed)

        class Tensor(torch.Tensor):
            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
            ) -> Any:
                with cuda.lock:
                    result = super().__torch_function__(func, types, args, kwargs or {})
                    noted(cuda, func.__name__, args, result)
                return result

        self.own = Tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def tensor(self, x: Any) -> Any:
        return self._new(torch.tensor(x), on_gpu=False)

    def empty(self, size: int, dtype: torch.dtype, pin_memory: bool) -> Any:
        assert pin_memory
        return self._new(torch.empty(size, dtype=dtype), on_gpu=False)

    def empty_like(self, x: Any, device: str = "cpu", **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        with torch._C.DisableTorchFunctionSubclass():
            made = torch.empty_like(x, **kwargs)
        return self._new(made, on_gpu=device != "cpu")

    def _new(self, plain: Any, on_gpu: bool) -> Any:
        with self.cuda.lock:
            x = plain.as_subclass(self.own)
            self.cuda.used(x, getattr(self.cuda.here, "stream", None), on_gpu)
        return x


def noted(cuda: Cuda, name: str, args: tuple[Any, ...], result: Any) -> None:
    """Write down what an operator reads and writes; what gives a view of its argument does neither."""
    if not isinstance(result, torch.Tensor):
        return
    with torch._C.DisableTorchFunctionSubclass():
        read = [address(x) for x in args if isinstance(x, torch.Tensor)]
        written = address(result)
        in_place = name.endswith("_") and not name.endswith("__")
        on_gpu = any(memory in cuda.on_gpu for memory in read)
        stream = getattr(cuda.here, "stream", None) if on_gpu else None
        if in_place or written not in read:
            for memory in {*read} - {written}:
                cuda.access(memory, False, name, stream)
            if in_place:
                cuda.access(written, True, name, stream)
        if not in_place:
            # `to` is how the host takes what it has waited for.
            cuda.used(result, stream, on_gpu and name != "to")
            if written not in read:
                cuda.access(written, True, name, stream)


def address(x: torch.Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return x.untyped_storage().data_ptr()
