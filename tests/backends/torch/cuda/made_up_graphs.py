"""Made-up CUDA graphs: what is recorded is computed when it is replayed, and not before, in the
memory recorded.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from backends.arrays import tree_leaves

if TYPE_CHECKING:
    from tests.backends.torch.cuda.made_up_cuda import Cuda, MadeUpStream

_here = threading.local()


class Part(NamedTuple):
    """Some memory, and which of its addresses."""

    memory: int
    start: int
    stop: int


class GraphAccess(NamedTuple):
    """An operator of a graph, by name, that reads or writes a part of some memory."""

    part: Part
    writes: bool
    name: str


def address(x: torch.Tensor) -> int:
    """Return what stands for the memory of a tensor: its address, or that of the storage if it has
    no elements.
    """
    with torch._C.DisableTorchFunctionSubclass():
        storage = x.untyped_storage()
        return storage.data_ptr() or storage._cdata


def part_of(x: torch.Tensor) -> Part:
    """Return the memory of a tensor; what is between its elements counts."""
    with torch._C.DisableTorchFunctionSubclass():
        size = 0
        if x.numel() > 0:
            last_element = 0
            for length, stride in zip(x.shape, x.stride(), strict=True):
                last_element += (length - 1) * stride
            size = (last_element + 1) * x.element_size()
        return Part(address(x), x.data_ptr(), x.data_ptr() + size)


class MadeUpGraph:
    """Operators, and which memory they read and write."""

    def __init__(self, cuda: "Cuda") -> None:
        self.cuda = cuda
        self.gpu = -1
        self.replays = 0
        self.operators: list[Callable[[], None]] = []
        self.accesses: list[GraphAccess] = []

    def replay(self) -> None:
        """Issue all operators to the GPU's current stream."""
        with self.cuda.lock:
            self.replays += 1
            stream = self.cuda.current_stream(self.gpu)
            for part, writes, name in self.accesses:
                self.cuda.access(part, writes, f"{name}, replayed,", stream)
            self.cuda.lag.issue(stream, self._compute)

    def _compute(self) -> None:
        for operator in self.operators:
            operator()


class Postponed:
    """An operator whose result has the right shapes and holds no numbers yet, or is a view."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._compute = partial(func, *args, **kwargs)
        memories_of_arguments = {address(x) for x in tensors((args, tuple(kwargs.values())))}
        self.new_tensors: dict[int, torch.Tensor] = {}
        """The tensors of the result that are no views of the arguments, by position in it."""
        with torch._C.DisableTorchFunctionSubclass():
            self.result = self._compute()
            for position, x in enumerate(tree_leaves(self.result)):
                if isinstance(x, torch.Tensor) and address(x) not in memories_of_arguments:
                    self.new_tensors[position] = x
                    # Integers stay those of what the arguments hold now: labels are looked up.
                    if x.is_floating_point():
                        x.fill_(float("nan"))

    def compute(self) -> None:
        """Compute the result from what the arguments hold now."""
        leaves = list(tree_leaves(self._compute()))
        for position, x in self.new_tensors.items():
            x.copy_(leaves[position])


class Recording(TorchDispatchMode):
    """Writes down in a graph what PyTorch would issue; its results are not numbers yet."""

    def __init__(self, graph: MadeUpGraph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        postponed = Postponed(func, args, kwargs or {})
        self.graph.operators.append(postponed.compute)
        return postponed.result


@contextmanager
def recording(
    graph: MadeUpGraph, stream: "MadeUpStream", capture_error_mode: str
) -> Iterator[None]:
    """Record in a graph what this thread issues to the stream."""
    cuda = graph.cuda
    assert capture_error_mode == "thread_local"
    with cuda.lock:
        if cuda.is_recording:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        cuda.is_recording = True
    graph.gpu = stream.gpu
    _here.graph = graph
    stream_before = cuda.current_stream(stream.gpu)
    cuda.set_stream(stream)
    try:
        with Recording(graph):
            yield
        # As PyTorch does: not where the recording has failed.
        cuda.set_stream(stream_before)
    finally:
        cuda.is_recording = False
        _here.graph = None
        cuda.graphs.append(graph)


def recorded_here() -> MadeUpGraph | None:
    """Return the graph in which this thread records."""
    return getattr(_here, "graph", None)


def tensors(value: Any) -> list[torch.Tensor]:
    """List the tensors in a value, however deep in tuples and lists."""
    return [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]
