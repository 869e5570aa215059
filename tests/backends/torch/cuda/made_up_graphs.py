"""Made-up CUDA graphs: what is recorded is computed when it is replayed, and not before, in the
memory recorded.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


class Recording(TorchDispatchMode):
    """Writes down in a graph what PyTorch would issue; its results are not numbers yet."""

    def __init__(self, graph: MadeUpGraph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            new_tensors = new_tensors_in(result, args, kwargs)
            for x in new_tensors.values():
                if x.is_floating_point():
                    x.fill_(float("nan"))

        def compute_again() -> None:
            """Compute from what the arguments hold now, into the results of the recording."""
            leaves = list(tree_leaves(func(*args, **kwargs)))
            for position, x in new_tensors.items():
                x.copy_(leaves[position])

        self.graph.operators.append(compute_again)
        return result


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


def new_tensors_in(
    result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[int, torch.Tensor]:
    """Return the tensors of a result that are no views of the arguments, by position in it."""
    arguments = tensors((args, tuple(kwargs.values())))
    memories_of_arguments = {address(x) for x in arguments}
    return {
        position: leaf
        for position, leaf in enumerate(tree_leaves(result))
        if isinstance(leaf, torch.Tensor) and address(leaf) not in memories_of_arguments
    }
