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
from dataclasses import dataclass, field
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
    """The graphs of functions that depend on nothing but their arguments.

    A function has a graph for each kind of arguments and each stream. `torch` may be anything that
    has its graphs, streams and tensors.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._begun = threading.Lock()
        self._kinds: WeakKeyDictionary[Callable[..., Any], _Kinds] = WeakKeyDictionary()
        self._is_step: WeakKeyDictionary[Callable[..., Any], bool] = WeakKeyDictionary()
        self._streams: dict[int, Any] = {}

    def changing(self, ops: Ops, steps: bool) -> Ops:
        """Return the ops with an `as_unit` whose units are issued as a graph.

        With `steps`, `issue_step` also notices calls of gradients and updates.
        """
        # A module and no namespace, because it must be hashable.
        changed: Any = ModuleType(f"{__name__}.ops")
        vars(changed).update(vars(ops))
        changed.as_unit = lambda fn: partial(self.issue, fn)
        if steps:
            changed.value_and_grad = lambda fn: _noticed(ops.value_and_grad(fn))
            changed.sgd = _noticed(ops.sgd)
            changed.sgd_while_finite = _noticed(ops.sgd_while_finite)
        return changed

    def issue_step(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Return `fn(*args)`, issued by one graph if the function differentiates or updates."""
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
        """Return `fn(*args)`, issued by a graph from the third call of its kind on.

        All arrays must be on one GPU, to whose current stream the graph is issued. Otherwise, and
        if derivatives are asked for, the function is just called.
        """
        tensors = [x for x in tree_leaves(args) if isinstance(x, self._torch.Tensor)]
        if not tensors or not all(x.is_cuda for x in tensors):
            return fn(*args)
        # A graph knows no derivatives, and none can be recorded while another one is.
        if is_recorded_here() or any(x.requires_grad for x in tensors):
            return fn(*args)
        # A graph's memory is safe only if the order of one stream keeps its replays apart.
        stream = self._torch.cuda.current_stream(tensors[0].device)
        kind = (stream, self._signature(args))
        with self._begun:
            if fn not in self._kinds:
                self._kinds[fn] = _Kinds()
            kinds = self._kinds[fn]
        graph = kinds.graphs.get(kind)
        if graph is None:
            calls_before = kinds.calls.get(kind, 0)
            if calls_before == 0 and len(kinds.calls) >= MAX_CALLS:
                return fn(*args)
            if calls_before < ISSUED_AS_USUAL:
                kinds.calls[kind] = calls_before + 1
                return fn(*args)
            graph = self._record(stream, tensors[0].device.index, fn, args)
            kinds.graphs[kind] = graph
        return graph.replay(tensors)

    def _record(
        self, current: Any, gpu: int, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> "_Graph":
        """Record a function, with memory for its arguments, and return the graph."""
        torch = self._torch

        def allocated(x: Any) -> Any:
            return torch.empty_like(x) if isinstance(x, torch.Tensor) else x

        graph_args = tree_map(allocated, args)
        graph = torch.cuda.CUDAGraph()
        with _recording:
            # One stream records all graphs of a GPU: PyTorch has few streams, and a new one may be
            # in use already.
            if gpu not in self._streams:
                self._streams[gpu] = torch.cuda.Stream(gpu)
            # "thread_local": other threads go on issuing to other streams.
            recording = torch.cuda.graph(
                graph, stream=self._streams[gpu], capture_error_mode="thread_local"
            )
            # A recording that fails would leave its own stream behind as the current one.
            with torch.cuda.stream(current), recording, recording_here():
                result = fn(*graph_args)
        arguments = [x for x in tree_leaves(graph_args) if isinstance(x, torch.Tensor)]
        return _Graph(torch, graph, arguments, result, threading.Lock())

    def _signature(self, args: Sequence[Any]) -> Hashable:
        """Return the shapes, dtypes and devices of arrays, and the other arguments themselves."""
        parts: list[Hashable] = []
        for x in args:
            if isinstance(x, tuple | list):
                parts.append(self._signature(x))
            elif isinstance(x, self._torch.Tensor):
                parts.append((x.shape, x.dtype, x.device))
            else:
                parts.append((type(x), x))
        return tuple(parts)


@final
@dataclass(frozen=True)
class _Kinds:
    """The kinds of calls of one function: a stream, with the signature of the arguments."""

    calls: dict[Hashable, int] = field(default_factory=dict)
    """How many calls of each kind were issued without a graph."""
    graphs: "dict[Hashable, _Graph]" = field(default_factory=dict)


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
            self._overwrite(list(tree_leaves(result)), list(tree_leaves(self.result)))
        return result

    def _overwrite(self, outs: list[Any], xs: list[Any]) -> None:
        """Copy tensors to the memory of other ones, all of a dtype by one call."""
        pairs = list(zip(outs, xs, strict=True))
        for dtype in {out.dtype for out in outs}:
            pairs_of_dtype = [(out, x) for out, x in pairs if out.dtype == dtype]
            targets = [out for out, _ in pairs_of_dtype]
            sources = [x for _, x in pairs_of_dtype]
            self.torch._foreach_copy_(targets, sources)


def _noticed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function tell `issue_step` that the calling thread has called it."""

    @wraps(fn)
    def notice(*args: Any) -> Any:
        _here.notices = True
        return fn(*args)

    return notice
