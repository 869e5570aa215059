"""PyTorch's own profiler. Read it beside `backends/mxnet/profiler.py`: the same functions, in the same order.

PyTorch records each operator, and the operators that it calls, on the thread that ran it; on a GPU also each kernel, on
its stream. The marks under which our worker threads run name their queues, and the call of a verb that each task comes
from. Eager PyTorch on a CPU has no devices: all that it does is on the calling thread.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from backends.devices import Device
from backends.errors import BackendError
from backends.profiling.chrome_trace.slices import Slice, Trace
from backends.profiling.communication import is_communication
from backends.profiling.kernel_names import short_names
from backends.profiling.marks import Mark, function_name, marking_verbs, parse_task, parse_verb, task_text
from backends.profiling.threads_of_trace import (
    Queue,
    TraceThread,
    assemble,
    count_unlinked,
    enclosing,
    host_spans,
    numbered_queues,
    outermost,
    outermost_calls,
    python_queues,
    thread_of,
    windows,
)
from backends.profiling.timeline import Span, SpanKind, Timeline, Window, queue_order
from backends.protocol import Array
from backends.torch.base import TorchBackend
from backends.torch.gloo import exchanges, without_exchanges
from backends.torch.host_calls import host_calls
from backends.torch.streams.future import Announcing, futures_in

__all__ = ["check", "is_from", "profile", "timeline_of"]

OPERATORS, MARKS = "cpu_op", "user_annotation"
STEP = "ProfilerStep#"
ANNOTATIONS_ON_GPU = "gpu_user_annotation"
"""From the first to the last operation that an annotation launched, as Kineto reckons it."""
ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
LAUNCHES = {"cuda_runtime", "cuda_driver"}
READABLE_NAMES = {
    "AccumulateGrad": "keep gradient",
    "AvgPool2D": "avg_pool2d",
    "Convolution": "conv2d",
    "LogSoftmax": "log_softmax",
    "Mm": "matmul",
    "NllLoss": "nll_loss",
    "mm": "matmul",
}
"""What this project, and MXNet, call the same."""
COPY_OPERATORS = {"aten::copy_", "aten::clone", "aten::to", "aten::_to_copy"}
KIND_OF_TASK: dict[str, SpanKind] = {"clone": "copy", "overwrite": "copy", "to_host": "copy", "take_part": "exchange"}
"""What workers do in tasks that do not compute."""
KIND_OF_CALL: dict[str, SpanKind] = {"copy_to": "copy", "launch to_host": "copy", "allreduce": "exchange"}
"""What eager PyTorch does in calls that do not compute."""
EAGER_QUEUE = ("cpu", "calling thread")


def check(backend: TorchBackend) -> None:
    """Raise BackendError if PyTorch's profiler records the calling thread only."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        _ExperimentalConfig(profile_all_threads=True)
    except TypeError as error:
        raise BackendError(f"torch {backend.version} profiles the calling thread alone: install a newer one") from error


@contextmanager
def profile(backend: TorchBackend, path: Path) -> Iterator[Mark]:
    """Run PyTorch's profiler over all threads, which writes its trace to `path` at the end; gives a `Mark`."""
    # Its tracing library, Kineto, would report its stages on standard error.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as run_profiler

    all_threads = _ExperimentalConfig(profile_all_threads=True)
    activities = [ProfilerActivity.CPU]
    if any(device.kind == "gpu" for device in backend.devices):
        activities.append(ProfilerActivity.CUDA)
    with ExitStack() as stack:
        running = stack.enter_context(run_profiler(activities=activities, experimental_config=all_threads))
        stack.enter_context(marking_verbs(backend, record_function, _queue_device, _name_of))
        for stream in backend.streams:
            stack.enter_context(stream.submitting(partial(_under_mark, record_function, stream.name)))
        yield record_function
    running.export_chrome_trace(str(path))


def is_from(trace: Trace) -> bool:
    """Return whether PyTorch's profiler wrote a trace."""
    return "schemaVersion" in trace.properties or any(one.category == OPERATORS for one in trace.slices)


def timeline_of(trace: Trace, source: str = "torch") -> Timeline:
    """Read what PyTorch's profiler wrote. Of operators that call others, the outer one counts."""
    marks = [one for one in trace.slices if one.category == MARKS]
    on_gpu = [one for one in trace.slices if one.category in ON_GPU]
    tasks = [one for one in marks if parse_task(one.name)]
    workers = {thread_of(one) for one in tasks}
    work: dict[bool, list[Slice]] = {True: [], False: []}
    gloo = exchanges(marks, trace.slices)
    for one in without_exchanges(outermost(one for one in trace.slices if one.category == OPERATORS), gloo):
        work[thread_of(one) in workers].append(one)
    calls = outermost_calls(marks)
    with_marks = calls or on_gpu
    launched = {parsed.number: mark.start for mark in marks if (parsed := parse_verb(mark.name))}
    eager = not tasks and not on_gpu
    names = {} if calls else _thread_names(trace)
    spans = [
        *(_of_python(work[False], calls, eager, names) if with_marks else _of_threads(work[False], names)),
        *_of_workers(work[True], tasks, launched),
        # The verbs' marks say what exchanges.
        *([] if calls else [exchange.span for exchange in gloo]),
    ]
    of_gpus = list(_of_gpus(on_gpu, [one for one in trace.slices if one.category in LAUNCHES]))
    gpus = {span.device for span in of_gpus}
    notes = (*trace.problems, *_gpu_models(gpus, trace.properties.get("deviceProperties")))
    timeline = assemble(source, [*spans, *of_gpus], windows(marks), notes)
    timeline = count_unlinked(timeline, gpus)
    if calls or timeline.cases:
        return timeline
    found = host_calls(trace.columns, names, LAUNCHES) if on_gpu else None
    return replace(timeline, annotations=_annotations(trace.slices), host_calls=found)


def _thread_names(trace: Trace) -> dict[TraceThread, str]:
    # Kineto ends some with a space.
    return {thread: name.strip() for thread, name in trace.threads.items() if name.strip()}


def _gpu_models(gpus: Iterable[str], described: object) -> Iterator[str]:
    devices = described if isinstance(described, list) else []
    models = {f"gpu:{one.get('id')}": one.get("name") for one in devices if isinstance(one, dict)}
    for gpu in sorted(gpus, key=lambda gpu: queue_order(gpu, "")):
        if models.get(gpu):
            yield f"{gpu} is {models[gpu]}"


def _annotations(slices: Sequence[Slice]) -> tuple[Window, ...]:
    # Kineto of 2021 has steps among the operators.
    own = (one for one in slices if one.category == MARKS or one.name.startswith(STEP))
    return tuple(Window(one.name, one.start, one.end) for one in own if one.category != ANNOTATIONS_ON_GPU)


def _of_workers(work: Sequence[Slice], marks: Sequence[Slice], launched: Mapping[int, int]) -> Iterator[Span]:
    parsed = {thread_of(mark): task for mark in marks if (task := parse_task(mark.name))}
    queues = numbered_queues({thread: (task.device, task.queue) for thread, task in parsed.items()})
    mark_around = enclosing(marks)
    begun: set[tuple[TraceThread, int]] = set()
    for one in work:
        mark = mark_around(one)
        task = parse_task(mark.name) if mark else None
        if mark is None or task is None:
            yield _span(one, "compute", queues[thread_of(one)], None)
            continue
        # Only the first operator of a task waited for its turn.
        key = thread_of(mark), mark.start
        launch = None if key in begun else launched.get(task.number)
        begun.add(key)
        yield _span(one, KIND_OF_TASK.get(task.name.removeprefix("_"), "compute"), queues[thread_of(one)], launch)


def _of_python(
    work: Sequence[Slice], calls: Sequence[Slice], eager: bool, names: Mapping[TraceThread, str]
) -> Iterator[Span]:
    call_around = enclosing(calls)
    with_calls = [(one, call_around(one)) for one in work]
    outside = [one for one, call in with_calls if call is None]
    queues = python_queues(sorted((*calls, *outside), key=attrgetter("start")), names)
    yield from host_spans(calls, queues)
    yield from (_span(one, "host", queues[thread_of(one)], None) for one in outside)
    if not eager:
        # The span of a call stands for the operators in it.
        return
    eager_queues = numbered_queues({thread_of(one): EAGER_QUEUE for one, call in with_calls if call})
    previous = None
    for one, call in with_calls:
        if call and (parsed := parse_verb(call.name)):
            kind = KIND_OF_CALL.get(parsed.name, "compute")
            yield _span(one, kind, eager_queues[thread_of(one)], call.start if call is not previous else None)
            previous = call


def _of_threads(work: Sequence[Slice], names: Mapping[TraceThread, str]) -> Iterator[Span]:
    # Without marks, copies between devices cannot be recognised; `copy_` copies into memory that was there.
    queues = numbered_queues({thread_of(one): ("cpu", names.get(thread_of(one), "thread")) for one in work})
    for one in work:
        yield _span(one, "copy" if one.name == "aten::copy_" else "compute", queues[thread_of(one)], None)


def _of_gpus(work: Sequence[Slice], launches: Sequence[Slice]) -> Iterator[Span]:
    starts = {args["correlation"]: one.start for one in launches if "correlation" in (args := one.args)}
    names = short_names({one.name for one in work})
    communicates = {name: is_communication(name) for name in names}
    for one in work:
        args = one.args
        queue = f"gpu:{args.get('device', one.process)}", f"stream {args.get('stream', one.thread)}"
        exchanges = communicates[one.name]
        kind: SpanKind = "copy" if one.category == "gpu_memcpy" else "exchange" if exchanges else "compute"
        yield Span(names[one.name], kind, *queue, one.start, one.end, starts.get(args.get("correlation")), one.name)


def _under_mark(mark: Mark, queue: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    text = task_text(_name_of(fn), queue)
    inner = fn.function if isinstance(fn, Announcing) else fn

    def run(*args: Any) -> Any:
        with mark(text):
            return inner(*args)

    return Announcing(run) if isinstance(fn, Announcing) else run


def _name_of(fn: Any) -> str:
    return function_name(fn.function if isinstance(fn, Announcing) else fn)


def _queue_device(verb: str, *args: Array, **named: Array) -> Device | None:
    if verb == "copy_to":
        return named.get("device") or args[1]
    if verb == "launch":
        for future in futures_in(*args[1:]):
            return future.device
    return None


def _span(one: Slice, kind: SpanKind, queue: Queue, launched: int | None) -> Span:
    return Span(_readable(one.name), kind, *queue, one.start, one.end, launched, one.name)


@cache
def _readable(operator: str) -> str:
    if operator in COPY_OPERATORS:
        return "copy"
    plain = operator.removeprefix("autograd::engine::evaluate_function: ").rpartition("::")[2].rstrip("_")
    if backward := re.fullmatch(r"(\w+)Backward\d*", plain):
        return f"{READABLE_NAMES.get(backward[1], backward[1].lower())} backward"
    return READABLE_NAMES.get(plain, plain)
