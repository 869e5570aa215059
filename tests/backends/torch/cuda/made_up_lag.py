"""Made-up streams that lag: what is issued is computed later, in any order that a GPU could take.

An operator's results are not numbers until it is computed, and it reads what its arguments hold
then. Each stream keeps its operators in their order. One is computed when the host waits for it,
when another is that waits for it, or by chance; so whoever reads too early or overwrites too early
gets other numbers than NumPy's.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from backends.arrays import tree_leaves
from tests.backends.torch.cuda.made_up_graphs import address, tensors

if TYPE_CHECKING:
    from tests.backends.torch.cuda.made_up_cuda import Cuda, MadeUpStream

Issued = Counter[int]
"""How many operators, by stream."""


class Lag:
    """The operators of all streams that are not computed yet."""

    def __init__(self, cuda: "Cuda") -> None:
        self.cuda = cuda
        self.waiting: defaultdict[int, deque[tuple[Issued, Callable[[], object]]]] = defaultdict(
            deque
        )
        self.computed = Issued()
        self.gpus: dict[int, int] = {}
        """Of results that are in the middle of a function, by address."""
        self.kept: list[Any] = []

    def issue(self, stream: "MadeUpStream", compute: Callable[[], object]) -> None:
        """Put an operator behind all that its stream waits for."""
        self.waiting[id(stream)].append((Issued(stream.issued), compute))
        stream.issued[id(stream)] += 1
        while self.cuda.random.random() < 0.4:
            streams = [key for key, operators in self.waiting.items() if operators]
            if streams:
                key = self.cuda.random.choice(streams)
                self.compute(Issued({key: self.computed[key] + 1}))

    def compute(self, until: Issued) -> None:
        """Compute what is issued, as far as this."""
        for key, count in until.items():
            while self.computed[key] < count:
                before, operator = self.waiting[key].popleft()
                self.compute(Issued({k: n for k, n in before.items() if k != key}))
                with (
                    torch._C.DisableTorchFunctionSubclass(),
                    torch.no_grad(),
                    # What autograd keeps was not overwritten: it is computed only now.
                    torch._C._AutoDispatchBelowADInplaceOrView(),
                ):
                    operator()
                self.computed[key] += 1

    def gpu_of(self, x: torch.Tensor) -> int | None:
        """Return the GPU of a tensor; None on the host."""
        return self.gpus.get(address(x), self.cuda.on_gpu.get(address(x)))


class Lagging(TorchDispatchMode):
    """Issues what PyTorch would issue to a GPU, to be computed later."""

    def __init__(self, lag: Lag) -> None:
        super().__init__()
        self.lag = lag

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        lag, kwargs = self.lag, kwargs or {}
        taken = tensors((args, tuple(kwargs.values())))
        gpus = [gpu for x in taken if (gpu := lag.gpu_of(x)) is not None]
        if not gpus:
            return func(*args, **kwargs)
        # A copy between GPUs runs on the source's stream, and both wait for each other.
        stream, *others = [lag.cuda.current_stream(gpu) for gpu in dict.fromkeys(reversed(gpus))]
        for other in others:
            stream.issued |= other.issued
        if func is torch.ops.aten._local_scalar_dense.default:
            lag.compute(stream.issued)
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            result = args[0] if func._schema.returns else None
            lag.issue(stream, lambda: func(*args, **kwargs))
        else:
            result = self._result(stream, gpus[-1], func, args, kwargs)
        for other in others:
            other.issued |= stream.issued
        return result

    def _result(self, stream: "MadeUpStream", gpu: int, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a result of the right shapes that holds no numbers yet, or views."""
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            shared = {address(x) for x in tensors((args, tuple(kwargs.values())))}
            made = [
                (place, x)
                for place, x in enumerate(tree_leaves(result))
                if isinstance(x, torch.Tensor) and address(x) not in shared
            ]
            for _, x in made:
                self.lag.kept.append(x.untyped_storage())
                if kwargs.get("device") is None:
                    self.lag.gpus[address(x)] = gpu
                # Integers stay those of what the arguments hold now: labels are looked up.
                if x.is_floating_point():
                    x.fill_(float("nan"))

        def compute() -> None:
            computed = list(tree_leaves(func(*args, **kwargs)))
            for place, x in made:
                x.copy_(computed[place])

        if made:
            self.lag.issue(stream, compute)
        return result
