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
from pathlib import Path

from backends.device import Device
from backends.errors import BackendError
from backends.profiling.marks import Mark, marking_verbs, marking_work, run_of, verb_of
from backends.profiling.rows import assemble, enclosing, host_spans, numbered_queues, outermost, row_of, windows
from backends.profiling.slices import Slice, Trace
from backends.profiling.timeline import HOST_DEVICE, Kind, Span, Timeline
from backends.promises import promises
from backends.protocol import Array
from backends.torch_backend import TorchBackend

__all__ = ["check", "is_from_torch", "profile", "timeline_of"]

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
"""Operators that copy, where no other one called them."""
EXCHANGES = {"allreduce", "take_part"}
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
    if backend.devices[0].kind == "gpu":
        activities.append(ProfilerActivity.CUDA)
    with (
        run_profiler(activities=activities, experimental_config=all_threads) as running,
        marking_verbs(backend, record_function, _device_of),
        marking_work(backend.streams, record_function),
    ):
        yield record_function
    running.export_chrome_trace(str(path))


def is_from_torch(trace: Trace) -> bool:
    """Tell whether PyTorch's profiler wrote a trace."""
    return "schemaVersion" in trace.properties or any(one.category == OPERATORS for one in trace.slices)


def timeline_of(trace: Trace, source: str = "torch") -> Timeline:
    """Read what PyTorch's profiler wrote. Of operators that call others, the outer one counts."""
    marks = [one for one in trace.slices if one.category == MARKS]
    work = [one for one in trace.slices if one.category == OPERATORS]
    on_gpu = [one for one in trace.slices if one.category in ON_GPU]
    runs = [one for one in marks if run_of(one.name)]
    workers = {row_of(one) for one in runs}
    calls = {read.number: mark.start for mark in marks if (read := verb_of(mark.name))}
    spans = [
        *host_spans(marks),
        *_on_workers([one for one in work if row_of(one) in workers], runs, calls),
        *_on_calling_threads(
            [one for one in work if row_of(one) not in workers], marks, eager=not workers and not on_gpu
        ),
        *_on_gpus(on_gpu, [one for one in trace.slices if one.category in LAUNCHES]),
    ]
    return assemble(source, spans, windows(marks), trace.problems)


def _on_workers(work: Sequence[Slice], runs: Sequence[Slice], calls: Mapping[int, float]) -> Iterator[Span]:
    read = {row_of(mark): task for mark in runs if (task := run_of(mark.name))}
    queues = numbered_queues({row: (task.device, task.queue) for row, task in read.items()})
    run_around = enclosing(runs)
    told: set[int] = set()
    for one in outermost(work):
        mark = run_around(one)
        task = run_of(mark.name) if mark else None
        launched = None
        if task and task.number not in told:
            # The first operator of a task waited for its turn; the others for the one before.
            told.add(task.number)
            launched = calls.get(task.number)
        yield _span(one, *queues[row_of(one)], "exchange" if task and task.name in EXCHANGES else None, launched)


def _on_calling_threads(work: Sequence[Slice], marks: Sequence[Slice], eager: bool) -> Iterator[Span]:
    call_around = enclosing(outermost(mark for mark in marks if verb_of(mark.name)))
    operators = outermost(work)
    place = EAGER if eager else (HOST_DEVICE, "Python")
    queues = numbered_queues({row_of(one): place for one in operators})
    told = None
    for one in operators:
        call = call_around(one)
        queue = queues[row_of(one)]
        if not eager:
            # What lies in a call is seen as that call.
            if call is None:
                yield _span(one, *queue, "host", None)
            continue
        verb = verb_of(call.name) if call else None
        exchanging = verb is not None and verb.name == "allreduce"
        yield _span(one, *queue, "exchange" if exchanging else None, call.start if call and call is not told else None)
        told = call


def _on_gpus(work: Sequence[Slice], launches: Sequence[Slice]) -> Iterator[Span]:
    begun = {one.args["correlation"]: one.start for one in launches if "correlation" in one.args}
    for one in work:
        device = f"gpu:{one.args.get('device', one.process)}"
        queue = f"stream {one.args.get('stream', one.thread)}"
        kind: Kind = "copy" if one.category == "gpu_memcpy" else "exchange" if "nccl" in one.name.lower() else "compute"
        launched = begun.get(one.args.get("correlation"))
        yield Span(_readable(one.name), kind, device, queue, one.start, one.end, launched, one.name)


def _device_of(verb: str, *args: Array) -> Device | None:
    if verb == "copy_to":
        return args[1]
    if verb == "launch":
        for promise in promises(*args[1:]):
            return promise.device
    return None


def _span(one: Slice, device: str, queue: str, kind: Kind | None, launched: float | None) -> Span:
    known = kind or ("copy" if one.name in COPIES else "compute")
    return Span(_readable(one.name), known, device, queue, one.start, one.end, launched, one.name)


@cache
def _readable(operator: str) -> str:
    if operator in COPIES:
        return "copy"
    plain = operator.removeprefix("autograd::engine::evaluate_function: ").rpartition("::")[2].rstrip("_")
    backward = re.fullmatch(r"(\w+)Backward\d*", plain)
    if backward:
        return f"{NAMES.get(backward[1], backward[1].lower())} backward"
    return NAMES.get(plain, plain)
