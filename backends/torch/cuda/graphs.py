"""CUDA graphs: what a function issues to a GPU is recorded once, and from then on issued by one
call.

A small training step is many short kernels, and the host can take longer to issue them than the GPU
to compute them.

A graph works on the memory that it was recorded with. So arguments are copied there, and results
away from there: values stay values. (One call copies all arrays of a type: each copy by itself
would be one more kernel to issue.)

The first calls are issued as usual: what CUDA's libraries set up when they are first used cannot be
recorded. Nor can the host ask for anything then: a label of no class, which is an error elsewhere,
makes the loss NaN.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import ModuleType
from typing import Any, final
from weakref import WeakKeyDictionary

from backends.arrays import tree_leaves, tree_map
from backends.protocol import Ops
from backends.torch.cuda.labels import is_recorded_here, recording_here

ISSUED_AS_USUAL = 2
MAX_CALLS = 64
"""How many different calls of one function may get a graph, whose memory stays for as long as the
function.
"""

# A recording begins by waiting for the whole GPU, which CUDA refuses while anything is recorded
# there.
_recording = threading.Lock()
_here = threading.local()


@final
class CudaGraphs:
    """The graphs of functions that depend on nothing but their arguments, on every stream to which
    they are issued.

    It is given `torch`, or whatever has its graphs, streams and tensors.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._begun = threading.Lock()
        self._calls: WeakKeyDictionary[Callable[..., Any], dict[Hashable, int | _Graph]] = (
            WeakKeyDictionary()
        )
        self._is_step: WeakKeyDictionary[Callable[..., Any], bool] = WeakKeyDictionary()
        self._streams: dict[int, Any] = {}

    def changing(self, ops: Ops, steps: bool) -> Ops:
        """Return the functions with units that are launched as a graph and, with `steps`, gradients
        and updates that `issue_step` notices.
        """
        # A module and no namespace, because it must be hashable.
        changed: Any = ModuleType(f"{__name__}.ops")
        vars(changed).update(vars(ops))
        changed.as_unit = lambda fn: partial(self.issue, fn)
        if steps:
            changed.value_and_grad = lambda fn: _noticed(ops.value_and_grad(fn))
            changed.sgd = _noticed(ops.sgd)
            changed.sgd_while_finite = _noticed(ops.sgd_while_finite)
        replayed: Ops = changed
        return replayed

    def issue_step(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Return `fn(*args)`, issued by a graph if the function differentiates or updates; all that
        it does besides is in the same graph.
        """
        try:
            is_step = self._is_step.get(fn)
        except TypeError:
            # Built-in methods cannot be referred to weakly.
            return fn(*args)
        if is_step is None:
            _here.notices = False
            result = self.issue(fn, *args)
            self._is_step[fn] = _here.notices
            return result
        return self.issue(fn, *args) if is_step else fn(*args)

    def issue(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Return `fn(*args)`, issued to the current stream of the GPU that all arrays are on; on
        CPUs, just called.
        """
        tensors = [x for x in tree_leaves(args) if isinstance(x, self._torch.Tensor)]
        if not tensors or not all(x.is_cuda for x in tensors):
            return fn(*args)
        # A graph knows no derivatives, and none can be recorded while another one is.
        if is_recorded_here() or any(x.requires_grad for x in tensors):
            return fn(*args)
        # A graph's memory is safe only if the order of one stream keeps its replays apart.
        stream = self._torch.cuda.current_stream(tensors[0].device)
        call = (stream, self._signature(args))
        with self._begun:
            calls = self._calls.setdefault(fn, {})
        graph = calls.get(call, 0)
        if isinstance(graph, int):
            issued = graph
            if issued == 0 and len(calls) >= MAX_CALLS:
                return fn(*args)
            if issued < ISSUED_AS_USUAL:
                calls[call] = issued + 1
                return fn(*args)
            graph = calls[call] = self._record(stream, tensors[0].device.index, fn, args)
        return graph.replay(tensors)

    def _record(
        self, current: Any, gpu: int, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> "_Graph":
        torch = self._torch
        own_args = tree_map(
            lambda x: torch.empty_like(x) if isinstance(x, torch.Tensor) else x, args
        )
        graph = torch.cuda.CUDAGraph()
        with _recording:
            # One for all: PyTorch's streams are few, and a new one may be a stream that is in use.
            if gpu not in self._streams:
                self._streams[gpu] = torch.cuda.Stream(gpu)
            # "thread_local": other threads go on issuing to other streams.
            recording = torch.cuda.graph(
                graph, stream=self._streams[gpu], capture_error_mode="thread_local"
            )
            # A recording that fails would leave its own stream behind as the current one.
            with torch.cuda.stream(current), recording, recording_here():
                result = fn(*own_args)
        arguments = [x for x in tree_leaves(own_args) if isinstance(x, torch.Tensor)]
        return _Graph(torch, graph, arguments, result, threading.Lock())

    def _signature(self, args: Sequence[Any]) -> Hashable:
        return tuple(
            self._signature(x)
            if isinstance(x, tuple | list)
            else (x.shape, x.dtype, x.device)
            if isinstance(x, self._torch.Tensor)
            else (type(x), x)
            for x in args
        )


@final
@dataclass(frozen=True)
class _Graph:
    """What a function issues for arguments of certain shapes, and the memory that it works on."""

    torch: Any
    graph: Any
    arguments: list[Any]
    result: Any
    replaying: threading.Lock

    def replay(self, arguments: list[Any]) -> Any:
        """Return the function's result for arguments of the shapes recorded."""
        result = tree_map(self.torch.empty_like, self.result)
        # Another thread's replay must not come in between.
        with self.replaying:
            self._overwrite(self.arguments, arguments)
            self.graph.replay()
            self._overwrite([*tree_leaves(result)], [*tree_leaves(self.result)])
        return result

    def _overwrite(self, outs: list[Any], xs: list[Any]) -> None:
        for dtype in {out.dtype for out in outs}:
            same = [(out, x) for out, x in zip(outs, xs, strict=True) if out.dtype == dtype]
            self.torch._foreach_copy_(*map(list, zip(*same, strict=True)))


def _noticed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function tell `issue_step` that the calling thread has called it."""

    @wraps(fn)
    def notice(*args: Any) -> Any:
        _here.notices = True
        return fn(*args)

    return notice
