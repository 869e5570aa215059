"""CUDA streams that whoever calls issues to, and the arrays that they compute.

A CUDA stream is a queue on the GPU: a call returns when its kernels are queued there. Its results
hold an event, which comes when they are computed. What takes a result waits in its own way:

- another stream waits for the event on the GPU, and the caller goes on issuing;
- the host blocks until the event has come;
- the stream itself comes later anyway.

PyTorch gives freed memory to the next allocation on the stream that allocated it, even while other
streams use it. So a stream records itself as a user of what another one computed (`record_stream`):
when the last tensor in that memory is let go, be it a view, PyTorch waits for what the users have
been issued.

What is to be overwritten may still be read on other streams, by a name that is long gone. So arrays
that share memory also share the table of its readers: for each stream, the end of the last call
there that used it. What overwrites the memory waits for these.

This module imports no framework: it is given `torch`, or whatever has its streams and events.
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, TypeAlias, final

from backends.arrays import rebuilt, tree_leaves
from backends.devices import HOST, Device, same_memory
from backends.errors import BackendError
from backends.torch.streams.future import NO_ARRAY, Failure, Future
from backends.torch.streams.worker import SCALARS

Readers: TypeAlias = "dict[CudaStream, End]"


@final
class End:
    """The end of a call on a stream, as an event.

    When nothing refers to the end any more, the event serves another call.
    """

    __slots__ = ("_event", "stream")

    def __init__(self, stream: "CudaStream", event: Any) -> None:
        self.stream, self._event = stream, event

    def __del__(self) -> None:
        self.stream.unused_events.append(self._event)

    def hold_back(self, cuda_stream: Any) -> None:
        """Let a CUDA stream wait for the end, on the GPU.

        Raises Failure if the GPU reports an error.
        """
        # CUDA reports an error of the GPU to the next caller, whoever that is.
        try:
            cuda_stream.wait_event(self._event)
        except Exception as error:
            raise Failure(error, self.stream.device) from error

    def wait(self) -> None:
        """Block until the call is computed; raises Failure if the GPU reports an error."""
        try:
            self._event.synchronize()
        except Exception as error:
            raise Failure(error, self.stream.device) from error


@final
class CudaArray:
    """A tensor on a GPU or on HOST, and the end of the call that computes it.

    The end is None if the tensor is computed already.
    """

    __slots__ = ("device", "end", "readers", "storage", "tensor")
    __iter__ = None

    def __init__(self, device: Device, end: End | None, tensor: Any) -> None:
        self.device, self.end, self.tensor = device, end, tensor
        self.storage: int = tensor.untyped_storage()._cdata
        """The address of the tensor's storage: equal for tensors in one memory."""
        self.readers: Readers = {}

    def on(self, device: Device) -> "CudaArray":
        """Set the device, in whose memory the array lies, and return the array."""
        self.device = device
        return self

    def __repr__(self) -> str:
        return f"<array on {self.device}>"


class Calls:
    """A queue of calls, which the calling thread issues in their order. Abstract."""

    device: Device

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor

    def submit(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Issue `fn(*args)`, with tensors in the place of arrays, and return its result as arrays.

        Raises Failure if `fn` raises.
        """
        return self.issue(fn, args, [])

    def submit_consuming(self, fn: Callable[..., Any], consumed: Any, *args: Any) -> Any:
        """Issue `fn(consumed, *args)`, which writes to the first argument's memory."""
        arrays: list[CudaArray] = []
        target = self._tensors(consumed, arrays)
        for array in arrays:
            for end in list(array.readers.values()):
                self._wait_for(end)
        return self.issue(fn, (target, *args), arrays)

    def issue(self, fn: Callable[..., Any], args: tuple[Any, ...], arrays: list[CudaArray]) -> Any:
        """Do what `submit` does, for a call that also uses `arrays`.

        The arrays in `args` are added to that list.
        """
        tensors = []
        for arg in args:
            # Written out here for most arguments, because a call of `_tensors` costs as much as all
            # else that is done for one.
            if arg.__class__ is CudaArray and arg.end is not None and arg.end.stream is self:
                arrays.append(arg)
                tensors.append(arg.tensor)
            elif arg.__class__ in SCALARS:
                tensors.append(arg)
            else:
                tensors.append(self._tensors(arg, arrays))
        try:
            self.enter()
            result = fn(*tensors)
            end = self._end(arrays)
            may_share = not getattr(fn, "new_memory", False)
            return self._arrays(result, end, arrays if may_share else [])
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Failure(error, self.device) from error

    def _tensors(self, value: Any, arrays: list[CudaArray]) -> Any:
        """Return a value with tensors in the place of arrays, and add the arrays to `arrays`.

        Calls that are issued from now on may use the tensors. Blocks until a copy that a CPU
        device's thread makes is issued.
        """
        if isinstance(value, CudaArray):
            arrays.append(value)
            end = value.end
            if end is not None and end.stream is not self:
                self._wait_for(end)
                self._use(value.tensor)
            return value.tensor
        if isinstance(value, Future):
            return self._tensors(value.result(), arrays)
        if isinstance(value, tuple | list):
            items = [self._tensors(item, arrays) for item in value]
            is_unchanged = all(map(is_, items, value))
            return value if is_unchanged else rebuilt(type(value), items)
        return value

    def _arrays(self, result: Any, end: End | None, others: list[CudaArray]) -> Any:
        """Return a result with arrays in the place of tensors, and add the arrays to `others`.

        An array that shares memory with one of `others` shares the table of readers, too.
        """
        if isinstance(result, self._tensor):
            array = CudaArray(self.device if result.is_cuda else HOST, end, result)
            for other in others:
                if other.storage == array.storage:
                    array.readers = other.readers
                    break
            others.append(array)
            return array
        if isinstance(result, tuple | list):
            items = [self._arrays(item, end, others) for item in result]
            return rebuilt(type(result), items)
        raise TypeError(f"what is launched returns arrays, not {type(result).__name__}")

    def enter(self) -> None:
        """Make this the queue to which PyTorch issues the calling thread's work from now on."""

    def synchronize(self) -> None:
        """Block until all issued calls are done; raises Failure if the GPU reports an error."""

    def _wait_for(self, end: End) -> None:
        """Let calls that are issued from now on come after an end."""
        raise NotImplementedError

    def _use(self, tensor: Any) -> None:
        """Keep a tensor's memory until the calls here are done; another stream may have made it."""

    def _end(self, used: Sequence[CudaArray]) -> End | None:
        """Return the end of all calls issued until now; the last one used these arrays."""


@final
class HostCalls(Calls):
    """Calls on arrays on HOST: the calling thread waits for the arrays, and computes."""

    device = HOST

    def _wait_for(self, end: End) -> None:
        end.wait()


@final
class CudaStream(Calls):
    """A CUDA stream of a logical device on a GPU, to which any thread may issue.

    It stays the calling thread's current stream: to restore the previous one would cost as much as
    all else that is done for a call.
    """

    def __init__(self, torch: Any, device: Device) -> None:
        super().__init__(torch)
        self.device = device
        self.unused_events: deque[Any] = deque()
        self._cuda = torch.cuda
        self._stream = torch.cuda.Stream(device.index)

    def enter(self) -> None:
        self._cuda.set_stream(self._stream)

    def synchronize(self) -> None:
        try:
            self._stream.synchronize()
        except Exception as error:
            raise Failure(error, self.device) from error

    def _wait_for(self, end: End) -> None:
        if end.stream is not self:
            end.hold_back(self._stream)

    def _use(self, tensor: Any) -> None:
        if tensor.is_cuda:
            tensor.record_stream(self._stream)

    def _end(self, used: Sequence[CudaArray]) -> End:
        """Return the end of all that was issued until now, and make it the readers' of `used`."""
        try:
            event = self.unused_events.pop()
        except IndexError:
            event = self._cuda.Event()
        event.record(self._stream)
        end = End(self, event)
        for array in used:
            array.readers[self] = end
        return end


def computed(value: Any) -> Any:
    """Return a value with tensors in the place of arrays; blocks until all are computed."""
    if isinstance(value, CudaArray):
        if value.end is not None:
            value.end.wait()
        return value.tensor
    if isinstance(value, Future):
        return computed(value.result())
    if isinstance(value, tuple | list):
        return tuple(map(computed, value))
    return value


def devices_in(*values: Any) -> list[Device]:
    """List the devices of the arrays in values, from left to right.

    Raises BackendError if the values hold no array.
    """
    devices = [x.device for x in tree_leaves(values) if isinstance(x, CudaArray | Future)]
    if not devices:
        raise BackendError(NO_ARRAY)
    return devices


def common_device(*values: Any) -> Device:
    """Return the device of the first array in values.

    Raises BackendError if that device cannot read another array.
    """
    # Most launches have one array and numbers.
    if values and values[0].__class__ is CudaArray and SCALARS.issuperset(map(type, values[1:])):
        return values[0].device
    first, *others = devices_in(*values)
    for other in others:
        if other is not first and not is_readable(other, first):
            raise BackendError(
                f"torch computes on one device, not on {first} and {other}: copy to one first"
            )
    return first


def is_readable(source: Device, device: Device) -> bool:
    """Return whether calls on `device` can use arrays of `source`.

    CPU devices cannot use those of HOST, though they share its memory, because nothing on a CPU
    device waits for a GPU.
    """
    both_or_none_are_host = (source == HOST) == (device == HOST)
    return both_or_none_are_host and same_memory(source, device)
