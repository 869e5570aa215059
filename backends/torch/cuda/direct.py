"""PyTorch on whole GPUs, one logical device each: CUDA's streams are the queues, and values are tensors.

Computation runs on the current stream of each GPU, and copies on two streams more, for what arrives and what leaves.
A copy between two GPUs runs on the source's current stream, and PyTorch makes it and the destination's current stream
wait for each other (Copy.cu): so both are set to streams for copies meanwhile.

The synchronous engine comes here too, with devices of any kind: everything is issued by the calling thread, and CUDA
is told to wait after every kernel.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, final

import numpy as np

from backends.arrays import check_equal, tree_leaves, tree_map
from backends.devices import HOST, Device
from backends.torch.cuda.copies import empty_like, place_of
from backends.torch.cuda.staging import Staging

__all__ = ["DirectCuda"]


@final
class DirectCuda:
    """The copies, loads and waits of GPUs that the calling thread issues to."""

    def __init__(self, torch: Any, gpus: Sequence[int], on_compute_queue: bool) -> None:
        self._torch = torch
        stream = torch.cuda.current_stream if on_compute_queue else torch.cuda.Stream
        self._arriving, self._leaving = ({gpu: stream(gpu) for gpu in gpus} for _ in range(2))
        self._staging = {gpu: Staging(torch) for gpu in gpus}
        self._in_copy: deque[tuple[Any, Any]] = deque()
        self._touched_host: dict[int, Any] = {}
        self._peers = len(gpus) > 1 and all(
            torch.cuda.can_device_access_peer(one, other) for one in gpus for other in gpus if one != other
        )

    def copy(self, x: Any, device: Device, out: Any = None) -> Any:
        """Issue a copy of a tensor to a device; by the host where neither end is on a GPU."""
        reading: list[Any] = []
        if out is None:
            out = empty_like(self._torch, x, device)
        else:
            # The current stream, which the copy waits for, does not itself wait for earlier copies from `out`.
            reading = self._copies_from(out)
        if not (x.is_cuda or out.is_cuda):
            self.await_on_host((x, out))
            return out.copy_(x)
        cuda = self._torch.cuda
        on_host = [_address(tensor) for tensor in (x, out) if not tensor.is_cuda]
        ways = [(self._leaving, x)] * x.is_cuda + [(self._arriving, out)] * out.is_cuda
        streams = [streams[tensor.device.index] for streams, tensor in ways]
        for stream, (_, tensor) in zip(streams, ways, strict=True):
            stream.wait_stream(cuda.current_stream(tensor.device))
            for earlier in (*reading, *filter(None, map(self._touched_host.get, on_host))):
                stream.wait_event(earlier)
        with ExitStack() as during:
            for stream in streams:
                during.enter_context(cuda.stream(stream))
            # CUDA cannot tell when the host's ordinary memory may be used again, so the host waits for such a copy.
            out.copy_(x, non_blocking=all(t.is_cuda or t.is_pinned() for t in (x, out)))
        done = streams[-1].record_event()
        self._touched_host.update(dict.fromkeys(on_host, done))
        if out.is_cuda:
            cuda.current_stream(out.device).wait_event(done)
        # PyTorch would reuse the source's memory as soon as the last reference goes, copied or not.
        self._in_copy.append((done, x))
        while self._in_copy and self._in_copy[0][0].query():
            self._in_copy.popleft()
        return out

    def load(self, x: np.ndarray, device: Device) -> Any:
        """Issue a copy of a NumPy array to a device."""
        # From a tensor of its own: PyTorch warns of arrays that cannot be written to.
        tensor = self._torch.tensor(x)
        if device.kind == "gpu":
            return self._staging[device.index].to_gpu(empty_like(self._torch, tensor, device), tensor)
        return empty_like(self._torch, tensor, device).copy_(tensor) if device == HOST else tensor

    def wait(self, x: Any) -> None:
        """Block until a tensor is computed."""
        if x.is_cuda:
            # The stream, not the tensor: PyTorch has no event per tensor.
            self._torch.cuda.current_stream(x.device).synchronize()
        else:
            self.await_on_host(x)

    def await_on_host(self, values: Any) -> None:
        """Block until the copies from and to tensors on the host are done."""
        # No stream orders what the host reads or writes; only the copy's own event says that it is done.
        for leaf in tree_leaves(values):
            if isinstance(leaf, self._torch.Tensor) and not leaf.is_cuda:
                copied = self._touched_host.get(_address(leaf))
                if copied is not None:
                    copied.synchronize()

    def before_writing(self) -> None:
        """Let all GPUs' current streams wait for the copies that are under way: they may read what is overwritten."""
        for copied, source in self._in_copy:
            if source.is_cuda:
                self._torch.cuda.current_stream(source.device).wait_event(copied)

    def sum_between_peers(self, xs: Sequence[Any]) -> bool:
        """Replace each GPU's value by the sum of all, over NCCL; return False where it cannot be done so."""
        terms = [list(same) for same in zip(*map(tree_leaves, xs), strict=True)]
        for same in terms:
            check_equal(same)
        if not self._peers:
            return False
        nccl = self._torch.cuda.nccl
        if not all(nccl.is_available(same) for same in terms):
            return False
        self.before_writing()
        for same in terms:
            if same[0].numel():
                nccl.all_reduce(same)
        return True

    def gather_and_broadcast(self, add_into: Callable[..., Any], first: Any, *others: Any) -> tuple[Any, ...]:
        """Sum all values in the place of the first, by `add_into(first, *others)`, and copy the sum to the others."""
        home = _device_of(next(tree_leaves(first)))
        terms = [tree_map(lambda leaf: self._brought(leaf, home), x) for x in others]
        self.before_writing()
        self.await_on_host((first, *terms))
        total = add_into(first, *terms)
        return (total, *(tree_map(self._overwrite, x, total) for x in others))

    def _brought(self, x: Any, home: Device) -> Any:
        return x if place_of(_device_of(x)) == place_of(home) else self.copy(x, home)

    def _copies_from(self, x: Any) -> list[Any]:
        memory = _address(x)
        return [copied for copied, source in self._in_copy if _address(source) == memory]

    def _overwrite(self, out: Any, x: Any) -> Any:
        # The copy waits for the current stream, and so for what that waits for.
        self.before_writing()
        return self.copy(x, _device_of(out), out)


def _device_of(x: Any) -> Device:
    # All of the host's ordinary memory is one place.
    return Device("gpu", x.device.index) if x.is_cuda else Device("cpu", 1)


def _address(x: Any) -> int:
    return int(x.untyped_storage().data_ptr())
