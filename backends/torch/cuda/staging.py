"""Copies between the host's ordinary memory and a GPU, by way of page-locked buffers that are used again and again.

A GPU copies by itself from and to page-locked memory only. To lock an array's own pages for each copy costs more than
the copy; so the array goes through a few buffers in pieces, and while the GPU copies one the host fills the next.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, final


@final
class Staging:
    """Some page-locked buffers of PyTorch; one thread at a time uses them.

    Copies are issued to the calling thread's current streams. The buffers are allocated when they are first needed.
    """

    def __init__(self, torch: Any, buffers: int = 4, piece_bytes: int = 2**22) -> None:
        self._torch, self._max_buffers, self._bytes = torch, buffers, piece_bytes
        self._buffers: deque[tuple[Any, Any]] = deque()
        self._allocated = 0

    def to_gpu(self, out: Any, x: Any) -> Any:
        """Issue a copy of `x`, in ordinary memory, to `out`, on a GPU; `x` may change on return."""
        if not out.is_contiguous():
            return out.copy_(self.to_gpu(self._in_plain_order(out), x))
        for target, source in self._pieces(out, x):
            whole, buffer = self._next(source)
            buffer.copy_(source)
            target.copy_(buffer, non_blocking=True)
            self._buffers.append((whole, self._event(out)))
        return out

    def to_host(self, out: Any, x: Any) -> Any:
        """Copy `x`, on a GPU, to `out`, in ordinary memory; complete on return."""
        if not out.is_contiguous():
            return out.copy_(self.to_host(self._in_plain_order(out), x))
        issued: deque[tuple[Any, Any, Any, Any]] = deque()
        for target, source in self._pieces(out, x):
            if len(issued) == self._max_buffers:
                self._empty(*issued.popleft())
            whole, buffer = self._next(source)
            buffer.copy_(source, non_blocking=True)
            issued.append((self._event(x), whole, buffer, target))
        while issued:
            self._empty(*issued.popleft())
        return out

    def _empty(self, done: Any, whole: Any, buffer: Any, target: Any) -> None:
        done.synchronize()
        target.copy_(buffer)
        self._buffers.append((whole, done))

    def _pieces(self, out: Any, x: Any) -> Iterator[tuple[Any, Any]]:
        length = max(1, self._bytes // x.element_size())
        targets, sources = out.view(-1), x.detach().contiguous().view(-1)
        for start in range(0, len(sources), length):
            yield targets[start : start + length], sources[start : start + length]

    def _next(self, piece: Any) -> tuple[Any, Any]:
        if self._allocated < self._max_buffers and not (self._buffers and self._buffers[0][1].query()):
            self._allocated += 1
            whole = self._torch.empty(self._bytes, dtype=self._torch.uint8, pin_memory=True)
        else:
            whole, done = self._buffers.popleft()
            done.synchronize()
        return whole, whole[: piece.nbytes].view(piece.dtype)

    def _in_plain_order(self, out: Any) -> Any:
        return self._torch.empty_like(out, memory_format=self._torch.contiguous_format)

    def _event(self, on_gpu: Any) -> Any:
        return self._torch.cuda.current_stream(on_gpu.device).record_event()
