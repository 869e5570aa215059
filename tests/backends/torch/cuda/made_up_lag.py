"""Made-up streams that lag: what is issued is computed later, in any order that a GPU could take.

An operator's results are not numbers until it is computed, and it reads what its arguments hold
then. Each stream keeps its operators in their order. One is computed when the host waits for it,
when another is that waits for it, or by chance; so whoever reads too early or overwrites too early
gets other numbers than NumPy's.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.backends.torch.cuda.made_up_graphs import Postponed, address, tensors

if TYPE_CHECKING:
    from tests.backends.torch.cuda.made_up_cuda import Cuda, MadeUpStream

Issued = Counter[int]
"""By stream, how many of its first operators are meant."""


class WaitingOperator(NamedTuple):
    """An operator that is not computed yet, and which operators it comes behind."""

    behind: Issued
    compute: Callable[[], object]


class Lag:
    """The operators of all streams that are not computed yet.

    Streams are keys by `id`.
    """

    def __init__(self, cuda: "Cuda") -> None:
        self.cuda = cuda
        self.waiting: defaultdict[int, deque[WaitingOperator]] = defaultdict(deque)
        self.computed = Issued()
        self.gpus: dict[int, int] = {}
        """The GPUs of results that are in the middle of a function, by address."""
        self.kept: list[Any] = []

    def issue(self, stream: "MadeUpStream", compute: Callable[[], object]) -> None:
        """Put an operator behind all that its stream waits for; compute some others by chance."""
        self.waiting[id(stream)].append(WaitingOperator(Issued(stream.issued), compute))
        stream.issued[id(stream)] += 1
        while self.cuda.random.random() < 0.4:
            busy_streams = [key for key, operators in self.waiting.items() if operators]
            if busy_streams:
                key = self.cuda.random.choice(busy_streams)
                with_next = self.computed[key] + 1
                self.compute(Issued({key: with_next}))

    def compute(self, until: Issued) -> None:
        """Compute the first operators of each stream, up to these numbers."""
        for key, count in until.items():
            while self.computed[key] < count:
                operator = self.waiting[key].popleft()
                # Its own stream's earlier operators are computed already.
                behind_other_streams = Issued(operator.behind)
                del behind_other_streams[key]
                self.compute(behind_other_streams)
                with (
                    torch._C.DisableTorchFunctionSubclass(),
                    torch.no_grad(),
                    # What autograd keeps was not overwritten: it is computed only now.
                    torch._C._AutoDispatchBelowADInplaceOrView(),
                ):
                    operator.compute()
                self.computed[key] += 1

    def gpu_of(self, x: torch.Tensor) -> int | None:
        """Return the GPU of a tensor; None on the host."""
        memory = address(x)
        return self.gpus.get(memory, self.cuda.on_gpu.get(memory))


class Lagging(TorchDispatchMode):
    """Issues what PyTorch would issue to a GPU, to be computed later."""

    def __init__(self, lag: Lag) -> None:
        super().__init__()
        self.lag = lag

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        lag, kwargs = self.lag, kwargs or {}
        gpus = []
        for x in tensors((args, tuple(kwargs.values()))):
            gpu = lag.gpu_of(x)
            if gpu is not None:
                gpus.append(gpu)
        if not gpus:
            return func(*args, **kwargs)
        # A copy between GPUs runs on the stream of its source, the last tensor, and the two streams
        # wait for each other.
        last_gpu_first = dict.fromkeys(reversed(gpus))
        stream, *other_streams = [lag.cuda.current_stream(gpu) for gpu in last_gpu_first]
        for other in other_streams:
            stream.issued |= other.issued
        if func is torch.ops.aten._local_scalar_dense.default:
            # The host asks for a number, so it waits.
            lag.compute(stream.issued)
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            result = args[0] if func._schema.returns else None
            lag.issue(stream, lambda: func(*args, **kwargs))
        else:
            result = self._result(stream, gpus[-1], func, args, kwargs)
        for other in other_streams:
            other.issued |= stream.issued
        return result

    def _result(self, stream: "MadeUpStream", gpu: int, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a result that is computed later."""
        postponed = Postponed(func, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            for x in postponed.new_tensors.values():
                self.lag.kept.append(x.untyped_storage())
                if kwargs.get("device") is None:
                    self.lag.gpus[address(x)] = gpu
        if postponed.new_tensors:
            self.lag.issue(stream, postponed.compute)
        return postponed.result
