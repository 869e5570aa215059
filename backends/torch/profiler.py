"""PyTorch's own profiler. Read it beside `backends/mxnet/profiler.py`: the same functions, in the
same order.

PyTorch records each operator, and the operators that it calls, on the thread that ran it; on a GPU
also each kernel, on its stream. The marks under which our worker threads run name their queues, and
the call of a verb that each task comes from. Eager PyTorch on a CPU has no devices: all that it
does is on the calling thread.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from backends.errors import BackendError
from backends.profiling.kernel_names import short_names
from backends.profiling.marks import (
    Mark,
    function_name,
    marking_verbs,
    parse_task,
    parse_verb,
    queue_device,
    task_text,
)
from backends.profiling.readers import ChromeReader
from backends.profiling.slices import Slice, Slices, Trace, TraceThread
from backends.profiling.threads_of_trace import (
    assemble,
    enclosing,
    host_spans,
    numbered_queues,
    outermost,
    outermost_calls,
    python_queues,
    spans_of,
    thread_of,
    windows,
)
from backends.profiling.timeline import Queue, Span, SpanKind, Spans, Timeline, Window, queue_order
from backends.torch.backend import TorchBackend
from backends.torch.cuda.streams import CudaArray
from backends.torch.kineto_devices import (
    ANNOTATIONS_ON_DEVICE,
    MARKS,
    ON_DEVICE,
    OPERATORS,
    STEP,
    device_spans,
    in_words_of_today,
    is_launch,
    lacks_devices,
    left_out,
    missing_operations,
    waits_left_out,
    without_category,
)
from backends.torch.kineto_host import (
    exchanges,
    host_calls,
    without_exchanges,
    without_inner_work,
    without_waits,
)
from backends.torch.program_hooks import TorchProfiler, all_threads
from backends.torch.streams.future import Announcing, Future

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
KIND_OF_TASK: dict[str, SpanKind] = {
    "clone": "copy",
    "overwrite": "copy",
    "to_host": "copy",
    "copy_from_cpu": "copy",
    "copy_to_cpu": "copy",
    "overwrite_on_cpu": "copy",
    "take_part": "exchange",
}
"""What workers do in tasks that do not compute."""
KIND_OF_CALL: dict[str, SpanKind] = {
    "copy_to": "copy",
    "launch to_host": "copy",
    "allreduce": "exchange",
}
"""What eager PyTorch does in calls that do not compute."""
EAGER_QUEUE = ("cpu", "calling thread")
RECORDED = {OPERATORS, *ON_DEVICE}
"""What only this profiler writes."""


def check(backend: TorchBackend) -> None:
    """Raise BackendError if PyTorch's profiler records the calling thread only."""
    import torch

    if all_threads(torch) is None:
        raise BackendError(
            f"torch {backend.version} profiles only the calling thread: install a newer one"
        )


@contextmanager
def profile(backend: TorchBackend, path: Path) -> Iterator[Mark]:
    """Run PyTorch's profiler over all threads, which writes its trace to `path` at the end; gives a
    `Mark`.
    """
    import torch
    from torch.profiler import ProfilerActivity, record_function

    profiler = TorchProfiler(torch)
    on_gpus = any(device.kind == "gpu" for device in backend.devices)
    profiler.start(
        (ProfilerActivity.CPU, ProfilerActivity.CUDA) if on_gpus else (ProfilerActivity.CPU,)
    )
    try:
        with ExitStack() as stack:
            device_of = partial(queue_device, backend, (Future, CudaArray))
            stack.enter_context(marking_verbs(backend, record_function, device_of, _name_of))
            for stream in backend.streams:
                stack.enter_context(
                    stream.submitting(partial(_under_mark, record_function, stream.name))
                )
            yield record_function
    finally:
        profiler.stop(path)


def is_from(trace: Trace) -> bool:
    """Return whether PyTorch's profiler wrote a trace."""
    return "schemaVersion" in trace.properties or any(
        in_words_of_today(trace.columns).has_category(*RECORDED)
    )


def timeline_of(trace: Trace) -> Timeline:
    """Read what PyTorch's profiler wrote. Of operators that call other operators, the outer one
    counts.
    """
    slices = in_words_of_today(trace.columns)
    marks = list(slices.select(slices.has_category(MARKS)))
    tasks = [one for one in marks if parse_task(one.name)]
    gloo = exchanges(marks, slices)
    operators = outermost(slices.select(slices.has_category(OPERATORS)))
    operators = without_inner_work(operators, marks)
    outer = Slices.of(without_exchanges(without_waits(operators, slices), gloo))
    of_workers = outer.on_threads({thread_of(one) for one in tasks})
    work = {worker: outer.select(of_workers == worker) for worker in (True, False)}
    calls = outermost_calls(marks)
    launched = {parsed.number: mark.start for mark in marks if (parsed := parse_verb(mark.name))}
    on_devices = device_spans(slices, trace)
    names = {} if calls else _thread_names(trace)
    for_devices = bool(on_devices) or lacks_devices(slices)
    if calls:
        on_host = Spans.of(_of_python(work[False], calls, eager=not tasks and not on_devices))
    elif for_devices:
        # What launches for a GPU computes nothing, also if the GPU's own events are missing.
        on_host = spans_of(
            work[False], lambda _: "host", python_queues(work[False], names), _readable
        )
    else:
        on_host = _of_threads(work[False], names)
    spans = [on_host, Spans.of(_of_workers(work[True], tasks, launched)), on_devices]
    if not calls:
        # The verbs' marks say what exchanges.
        spans.append(Spans.of(exchange.span for exchange in gloo))
    devices = {device for device, _ in on_devices.queues}
    notes = (
        *trace.problems,
        *left_out(slices),
        *without_category(slices, trace),
        *missing_operations(slices),
        *waits_left_out(slices),
        *_models(devices, trace.properties),
    )
    timeline = assemble("torch", spans, windows(marks), notes, devices)
    if calls or timeline.cases:
        return timeline
    runtime = list(filter(is_launch, slices.categories))
    found = host_calls(slices, names, runtime) if for_devices else None
    # A trace of only devices says nothing about the host.
    linked = found if found is not None and len(found.starts) else None
    return replace(timeline, annotations=_annotations(slices), host_calls=linked)


READER = ChromeReader(is_from, timeline_of)


def _thread_names(trace: Trace) -> dict[TraceThread, str]:
    # Kineto ends some with a space.
    return {thread: name.strip() for thread, name in trace.threads.items() if name.strip()}


def _models(devices: Iterable[str], properties: Mapping[str, Any]) -> Iterator[str]:
    described = properties.get("deviceProperties", properties.get("computeProperties"))
    known = (
        [one for one in described if isinstance(one, dict)] if isinstance(described, list) else []
    )
    models = {str(one.get("id")): one.get("name") for one in known}
    for device in sorted(devices, key=lambda device: queue_order(device, "")):
        if model := models.get(device.partition(":")[2]):
            yield f"{device} is {model}"


def _annotations(slices: Slices) -> tuple[Window, ...]:
    of_steps = slices.has_name({name for name in slices.names if name.startswith(STEP)})
    own = slices.has_category(MARKS) | (of_steps & ~slices.has_category(ANNOTATIONS_ON_DEVICE))
    return tuple(Window(one.name, one.start, one.end) for one in slices.select(own))


def _of_workers(
    work: Sequence[Slice], marks: Sequence[Slice], launched: Mapping[int, int]
) -> Iterator[Span]:
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
        yield _span(
            one,
            KIND_OF_TASK.get(task.name.removeprefix("_"), "compute"),
            queues[thread_of(one)],
            launch,
        )


def _of_python(work: Sequence[Slice], calls: Sequence[Slice], eager: bool) -> Iterator[Span]:
    call_around = enclosing(calls)
    with_calls = [(one, call_around(one)) for one in work]
    outside = [one for one, call in with_calls if call is None]
    queues = python_queues(sorted((*calls, *outside), key=attrgetter("start")), {})
    yield from host_spans(calls, queues)
    yield from (_span(one, "host", queues[thread_of(one)], None) for one in outside)
    if not eager:
        # The span of a call stands for the operators in it.
        return
    eager_queues = numbered_queues(
        {thread_of(one): EAGER_QUEUE for one, call in with_calls if call}
    )
    previous = None
    for one, call in with_calls:
        if call and (parsed := parse_verb(call.name)):
            kind = KIND_OF_CALL.get(parsed.name, "compute")
            yield _span(
                one,
                kind,
                eager_queues[thread_of(one)],
                call.start if call is not previous else None,
            )
            previous = call


def _of_threads(work: Slices, names: Mapping[TraceThread, str]) -> Spans:
    queues = numbered_queues(
        {thread: ("cpu", names.get(thread, "thread")) for thread in work.threads()}
    )
    # Without marks, copies between devices cannot be recognised; `copy_` copies into memory that
    # was there.
    return spans_of(
        work, lambda operator: "copy" if operator == "aten::copy_" else "compute", queues, _readable
    )


def _under_mark(mark: Mark, queue: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    text = task_text(_name_of(fn), queue)
    inner = fn.function if isinstance(fn, Announcing) else fn

    def run(*args: Any) -> Any:
        with mark(text):
            return inner(*args)

    return Announcing(run) if isinstance(fn, Announcing) else run


def _name_of(fn: Any) -> str:
    return function_name(fn.function if isinstance(fn, Announcing) else fn)


def _span(one: Slice, kind: SpanKind, queue: Queue, launched: int | None) -> Span:
    return Span(_readable(one.name), kind, *queue, one.start, one.end, launched, one.name)


@cache
def _readable(operator: str) -> str:
    if operator in COPY_OPERATORS:
        return "copy"
    plain = operator.removeprefix("autograd::engine::evaluate_function: ")
    # A class that a user derived has template arguments, and `::` also stands in them.
    plain = short_names([plain])[plain] if "<" in plain else plain.rpartition("::")[2].rstrip("_")
    if backward := re.fullmatch(r"(\w+)Backward\d*", plain):
        return f"{READABLE_NAMES.get(backward[1], backward[1].lower())} backward"
    return READABLE_NAMES.get(plain, plain)
