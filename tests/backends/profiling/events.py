"""Events of Chrome traces, made up."""

from collections.abc import Callable, Iterator
from typing import Any

from backends.profiling import Trace

EPOCH = 1_795_279_713_356_264
HASH = 2**64 - 1

Event = dict[str, Any]
Read = Callable[..., Trace]


def ns(seconds: float) -> int:
    """Return a time as timelines hold it, in nanoseconds."""
    return round(seconds * 1e9)


def complete(name: str = "op", start: float = 0, duration: float = 5, **more: Any) -> Event:
    """Make an event that is a whole slice; times are in microseconds, and `more` comes last."""
    return {
        "ph": "X",
        "name": name,
        "cat": "cpu_op",
        "pid": 1,
        "tid": 2,
        "ts": start,
        "dur": duration,
        **more,
    }


def event_of(phase: str, name: str, time: float, **more: Any) -> Event:
    """Make an event of a phase, such as "B" for a begin, at a time in microseconds."""
    return {"ph": phase, "name": name, "cat": "operator", "pid": 1, "tid": HASH, "ts": time, **more}


def spans(trace: Trace) -> list[tuple[str, float, float]]:
    """Return the names of slices and their times in microseconds."""
    return [(span.name, span.start / 1000, span.end / 1000) for span in trace.slices]


def mxnet_events(count: int) -> Iterator[Event]:
    """Make begins of MXNet's operators, each with its end behind it, on two devices."""
    for number in range(count):
        operator, is_end = divmod(number, 2)
        name = f"operator_{operator % 50}"
        yield event_of("BE"[is_end], name, EPOCH + 7 * number, pid=1 + operator % 2)


def gpu_events(count: int) -> Iterator[Event]:
    """Make operators, the calls in them, flows, and kernels; every twentieth kernel is NCCL's, on
    another stream.
    """
    for number in range(1, count // 5 + 1):
        start = EPOCH + 30 * number
        args = {"External id": number, "correlation": number}
        stream = {"pid": 0, "tid": 7}
        kernel, duration = f"void kernel_{number % 50}<float, 4>(int)", 20
        if number % 20 == 0:
            stream["tid"] = 20
            kernel, duration = "ncclDevKernel_AllReduce_Sum_f32", 200
        flow = {"id": number, "cat": "ac2g"}
        yield complete(f"aten::operator_{number % 50}", start, 24, args=args)
        yield complete("cudaLaunchKernel", start + 1, 4, cat="cuda_runtime", args=args)
        yield event_of("s", "ac2g", start + 1, **flow)
        yield complete(kernel, start + 12, duration, cat="kernel", args=args, **stream)
        yield event_of("f", "ac2g", start + 12, bp="e", **flow, **stream)
