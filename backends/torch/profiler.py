"""PyTorch's own profiler. Read it beside `mxnet_profiler.py`: the same functions, in the same order.

PyTorch writes down each operator, with the ones that it calls in it, on the thread that ran it; on a GPU also each
kernel, on its stream. A worker thread of ours is known by the marks under which it runs: they say its queue, and which
call of a verb the work comes from. Eager PyTorch on a CPU has no devices: all that it does is on the calling thread.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from pathlib import Path

from backends.devices import Device
from backends.errors import BackendError
from backends.profiling.chrome_trace.slices import Slice, Trace
from backends.profiling.marks import Mark, marking_verbs, marking_work, run_of, verb_of
from backends.profiling.threads_of_trace import (
    Row,
    assemble,
    enclosing,
    host_spans,
    numbered_queues,
    outermost,
    python_queues,
    row_of,
    verbs_called,
    windows,
)
from backends.profiling.timeline import Kind, Span, Timeline
from backends.protocol import Array
from backends.torch.base import TorchBackend
from backends.torch.streams.future import futures_in

__all__ = ["check", "is_from", "profile", "timeline_of"]

OPERATORS, MARKS = "cpu_op", "user_annotation"
ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
LAUNCHES = {"cuda_runtime", "cuda_driver"}
NAMES = {
    "AccumulateGrad": "keep gradient",
    "AvgPool2D": "avg_pool2d",
    "Convolution": "conv2d",
    "LogSoftmax": "log_softmax",
    "Mm": "matmul",
    "NllLoss": "nll_loss",
    "mm": "matmul",
}
"""What this project, and MXNet, call the same."""
COPIES = {"aten::copy_", "aten::clone", "aten::to", "aten::_to_copy"}
TASKS: dict[str, Kind] = {"clone": "copy", "overwrite": "copy", "to_host": "copy", "take_part": "exchange"}
"""What workers do in tasks that do not compute."""
VERBS: dict[str, Kind] = {"copy_to": "copy", "launch to_host": "copy", "allreduce": "exchange"}
"""What eager PyTorch does in calls that do not compute."""
EAGER = ("cpu", "calling thread")


def check(backend: TorchBackend) -> None:
    """Raise BackendError for a PyTorch whose profiler sees the calling thread only."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        _ExperimentalConfig(profile_all_threads=True)
    except TypeError as error:
        raise BackendError(f"torch {backend.version} profiles the calling thread alone: install a newer one") from error


@contextmanager
def profile(backend: TorchBackend, path: Path) -> Iterator[Mark]:
    """Run PyTorch's profiler over all threads, which writes its trace to `path` at the end; yields what makes marks."""
    # Its tracing library, Kineto, would tell of its stages on standard error.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as run_profiler

    all_threads = _ExperimentalConfig(profile_all_threads=True)
    activities = [ProfilerActivity.CPU]
    if any(device.kind == "gpu" for device in backend.devices):
        activities.append(ProfilerActivity.CUDA)
    with (
        run_profiler(activities=activities, experimental_config=all_threads) as running,
        marking_verbs(backend, record_function, _device_of),
        marking_work(backend.streams, record_function),
    ):
        yield record_function
    running.export_chrome_trace(str(path))


def is_from(trace: Trace) -> bool:
    """Tell whether PyTorch's profiler wrote a trace."""
    return "schemaVersion" in trace.properties or any(one.category == OPERATORS for one in trace.slices)


def timeline_of(trace: Trace, source: str = "torch") -> Timeline:
    """Read what PyTorch's profiler wrote. Of operators that call others, the outer one counts."""
    marks = [one for one in trace.slices if one.category == MARKS]
    on_gpu = [one for one in trace.slices if one.category in ON_GPU]
    runs = [one for one in marks if run_of(one.name)]
    workers = {row_of(one) for one in runs}
    work: dict[bool, list[Slice]] = {True: [], False: []}
    for one in outermost(one for one in trace.slices if one.category == OPERATORS):
        work[row_of(one) in workers].append(one)
    calls = verbs_called(marks)
    if calls or on_gpu:
        python = list(_of_python(work[False], calls, eager=not runs and not on_gpu))
    else:
        python = list(_of_threads(work[False]))
    launched = {read.number: mark.start for mark in marks if (read := verb_of(mark.name))}
    spans = [
        *python,
        *_of_workers(work[True], runs, launched),
        *_of_gpus(on_gpu, [one for one in trace.slices if one.category in LAUNCHES]),
    ]
    return assemble(source, spans, windows(marks), trace.problems)


def _of_workers(work: Sequence[Slice], runs: Sequence[Slice], launched: Mapping[int, float]) -> Iterator[Span]:
    read = {row_of(mark): task for mark in runs if (task := run_of(mark.name))}
    queues = numbered_queues({row: (task.device, task.queue) for row, task in read.items()})
    run_around = enclosing(runs)
    told: set[tuple[Row, float]] = set()
    for one in work:
        mark = run_around(one)
        task = run_of(mark.name) if mark else None
        # The first operator of a task waited for its turn; the others for the one before.
        first = mark is not None and (row_of(mark), mark.start) not in told
        if mark:
            told.add((row_of(mark), mark.start))
        kind: Kind = "compute" if task is None else TASKS.get(task.name.removeprefix("_"), "compute")
        yield _span(one, kind, queues[row_of(one)], launched.get(task.number) if task and first else None)


def _of_python(work: Sequence[Slice], calls: Sequence[Slice], eager: bool) -> Iterator[Span]:
    call_around = enclosing(calls)
    within = [(one, call_around(one)) for one in work]
    beside = [one for one, call in within if call is None]
    queues = python_queues(sorted((*calls, *beside), key=attrgetter("start")))
    yield from host_spans(calls, queues)
    yield from (_span(one, "host", queues[row_of(one)], None) for one in beside)
    if not eager:
        # What lies in a call is seen as that call.
        return
    eagerly = numbered_queues({row_of(one): EAGER for one, call in within if call})
    told = None
    for one, call in within:
        read = verb_of(call.name) if call else None
        if call and read:
            kind = VERBS.get(read.name, "compute")
            yield _span(one, kind, eagerly[row_of(one)], call.start if call is not told else None)
            told = call


def _of_threads(work: Sequence[Slice]) -> Iterator[Span]:
    # Without marks, what copies from one device to another is not known; this one copies into memory that was there.
    queues = numbered_queues({row_of(one): ("cpu", "thread") for one in work})
    for one in work:
        yield _span(one, "copy" if one.name == "aten::copy_" else "compute", queues[row_of(one)], None)


def _of_gpus(work: Sequence[Slice], launches: Sequence[Slice]) -> Iterator[Span]:
    begun = {one.args["correlation"]: one.start for one in launches if "correlation" in one.args}
    for one in work:
        device = f"gpu:{one.args.get('device', one.process)}"
        queue = f"stream {one.args.get('stream', one.thread)}"
        kind: Kind = "copy" if one.category == "gpu_memcpy" else "exchange" if "nccl" in one.name.lower() else "compute"
        launched = begun.get(one.args.get("correlation"))
        yield Span(_readable(one.name), kind, device, queue, one.start, one.end, launched, one.name)


def _device_of(verb: str, *args: Array, **named: Array) -> Device | None:
    if verb == "copy_to":
        return named.get("device") or args[1]
    if verb == "launch":
        for future in futures_in(*args[1:]):
            return future.device
    return None


def _span(one: Slice, kind: Kind, queue: tuple[str, str], launched: float | None) -> Span:
    return Span(_readable(one.name), kind, *queue, one.start, one.end, launched, one.name)


@cache
def _readable(operator: str) -> str:
    if operator in COPIES:
        return "copy"
    plain = operator.removeprefix("autograd::engine::evaluate_function: ").rpartition("::")[2].rstrip("_")
    backward = re.fullmatch(r"(\w+)Backward\d*", plain)
    if backward:
        return f"{NAMES.get(backward[1], backward[1].lower())} backward"
    return NAMES.get(plain, plain)
