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

import numpy as np

from backends.errors import BackendError
from backends.profiling.collectives import is_communication
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
"""The names by which this project and MXNet call PyTorch's operators."""
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
"""The kinds of tasks of workers that do not compute, by the name of their function."""
KIND_OF_CALL: dict[str, SpanKind] = {
    "copy_to": "copy",
    "launch to_host": "copy",
    "allreduce": "exchange",
}
"""The kinds of calls in which eager PyTorch does not compute, by their name."""
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
    """Run PyTorch's profiler over all threads within a `with` block, and write its trace to `path`.

    The block gets a `Mark`.
    """
    import torch
    from torch.profiler import ProfilerActivity, record_function

    profiler = TorchProfiler(torch)
    activities = [ProfilerActivity.CPU]
    if any(device.kind == "gpu" for device in backend.devices):
        activities.append(ProfilerActivity.CUDA)
    profiler.start(activities)
    try:
        with ExitStack() as stack:
            device_of = partial(queue_device, backend, (Future, CudaArray))
            stack.enter_context(marking_verbs(backend, record_function, device_of, _name_of))
            for stream in backend.streams:
                mark_task = partial(_under_mark, record_function, stream.name)
                stack.enter_context(stream.submitting(mark_task))
            yield record_function
    finally:
        profiler.stop(path)


def is_from(trace: Trace) -> bool:
    """Return whether PyTorch's profiler wrote a trace."""
    if "schemaVersion" in trace.properties:
        return True
    slices = in_words_of_today(trace.columns)
    return bool(slices.has_category(*RECORDED).any())


def timeline_of(trace: Trace) -> Timeline:
    """Return the timeline of a trace that PyTorch's profiler wrote.

    Of operators that call other operators, the outer one counts.
    """
    slices = in_words_of_today(trace.columns)
    marks = list(slices.select(slices.has_category(MARKS)))
    task_marks = [mark for mark in marks if parse_task(mark.name)]
    calls = outermost_calls(marks)
    gloo_exchanges = exchanges(marks, slices)
    operators = outermost(
        slices.select(slices.has_category(OPERATORS) & ~_of_other_libraries(slices))
    )
    operators = without_inner_work(operators, marks, slices)
    operators = without_waits(operators, slices)
    operators = Slices.of(without_exchanges(operators, gloo_exchanges, slices))
    is_by_worker = operators.on_threads({thread_of(mark) for mark in task_marks})
    by_workers, by_program = operators.select(is_by_worker), operators.select(~is_by_worker)
    on_devices = device_spans(slices, trace)
    names = {} if calls else _thread_names(trace)
    uses_devices = bool(on_devices) or lacks_devices(slices)
    if calls:
        is_eager = not task_marks and not on_devices
        on_host = Spans.of(_of_python(by_program, calls, is_eager))
    elif uses_devices:
        # The host only launches for the GPU, whose own events may be missing.
        queues = python_queues(by_program, names)
        on_host = spans_of(by_program, lambda _: "host", queues, _readable)
    else:
        on_host = _of_threads(by_program, names)
    on_workers = Spans.of(_of_workers(by_workers, task_marks, _launch_times(marks)))
    spans = [on_host, on_workers, on_devices]
    if not calls:
        # Verbs have marks that say what exchanges; a program without verbs has not.
        spans.append(Spans.of(exchange.span for exchange in gloo_exchanges))
    devices = {device for device, _ in on_devices.queues}
    notes = (
        *trace.problems,
        *left_out(slices),
        *without_category(slices, trace),
        *missing_operations(slices),
        *waits_left_out(slices),
    )
    timeline = assemble("torch", spans, windows(marks), notes, devices)
    timeline = replace(timeline, models=tuple(_models(devices, trace.properties)))
    if calls or timeline.cases:
        return timeline
    timeline = replace(timeline, annotations=_annotations(slices))
    if not uses_devices:
        return timeline
    runtime_categories = list(filter(is_launch, slices.categories))
    calls_on_host = host_calls(slices, names, runtime_categories)
    # A trace of only devices says nothing about the host.
    has_host = len(calls_on_host.starts) > 0
    return replace(timeline, host_calls=calls_on_host) if has_host else timeline


READER = ChromeReader(is_from, timeline_of)


def _launch_times(marks: Iterable[Slice]) -> dict[int, int]:
    """Return the start of each call of a verb, by the number that its task has too."""
    starts: dict[int, int] = {}
    for mark in marks:
        verb = parse_verb(mark.name)
        if verb is not None:
            starts[verb.number] = mark.start
    return starts


def _thread_names(trace: Trace) -> dict[TraceThread, str]:
    """Return the names of a trace's threads that have one."""
    # Kineto ends some names with a space.
    return {thread: name.strip() for thread, name in trace.threads.items() if name.strip()}


def _models(devices: Iterable[str], properties: Mapping[str, Any]) -> Iterator[str]:
    """Say of each device what it is, if the trace's properties name its model."""
    descriptions = properties.get("deviceProperties", properties.get("computeProperties"))
    if not isinstance(descriptions, list):
        return
    model_of_index = {
        str(description.get("id")): description.get("name")
        for description in descriptions
        if isinstance(description, dict)
    }
    for device in sorted(devices, key=lambda device: queue_order(device, "")):
        _, _, index = device.partition(":")
        model = model_of_index.get(index)
        if model:
            yield f"{device} is {model}"


def _annotations(slices: Slices) -> tuple[Window, ...]:
    """Return the program's own annotations and steps, as windows."""
    is_step = slices.named(lambda name: name.startswith(STEP))
    is_on_device = slices.has_category(ANNOTATIONS_ON_DEVICE)
    is_annotation = slices.has_category(MARKS)
    selected = slices.select(is_annotation | (is_step & ~is_on_device))
    return tuple(
        Window(annotation.name, annotation.start, annotation.end) for annotation in selected
    )


def _of_other_libraries(slices: Slices) -> np.ndarray:
    """Return which slices only hold the operators of another library's exchanges, as oneCCL's."""
    if not (slices.named(is_communication) & slices.has_category(OPERATORS)).any():
        return np.zeros(len(slices), bool)
    return slices.named(lambda name: name.startswith("c10d::"))


def _of_workers(
    work: Sequence[Slice], marks: Sequence[Slice], launch_time_of: Mapping[int, int]
) -> Iterator[Span]:
    """Yield the spans of what worker threads computed, with the launches of their tasks."""
    queue_of_thread: dict[TraceThread, Queue] = {}
    for task_mark in marks:
        task = parse_task(task_mark.name)
        if task is not None:
            queue_of_thread[thread_of(task_mark)] = (task.device, task.queue)
    queues = numbered_queues(queue_of_thread)
    mark_around = enclosing(marks)
    begun_tasks: set[tuple[TraceThread, int]] = set()
    for operator in work:
        queue = queues[thread_of(operator)]
        mark = mark_around(operator)
        task = parse_task(mark.name) if mark else None
        if mark is None or task is None:
            yield _span(operator, "compute", queue, None)
            continue
        kind = KIND_OF_TASK.get(task.name.removeprefix("_"), "compute")
        # Only the first operator of a task waited for its turn, and has a launch.
        place_of_task = thread_of(mark), mark.start
        launch = None
        if place_of_task not in begun_tasks:
            launch = launch_time_of.get(task.number)
            begun_tasks.add(place_of_task)
        yield _span(operator, kind, queue, launch)


def _of_python(work: Sequence[Slice], calls: Sequence[Slice], is_eager: bool) -> Iterator[Span]:
    """Yield the spans of calls of verbs, and of the operators that the threads of Python ran.

    On a synchronous engine, the operators in a call are work of the device. Otherwise the span of
    the call stands for them.
    """
    call_around = enclosing(calls)
    operators_with_calls = [(operator, call_around(operator)) for operator in work]
    outside = [operator for operator, call in operators_with_calls if call is None]
    queues = python_queues(sorted((*calls, *outside), key=attrgetter("start")), {})
    yield from host_spans(calls, queues)
    for operator in outside:
        yield _span(operator, "host", queues[thread_of(operator)], None)
    if not is_eager:
        return
    threads = {thread_of(operator): EAGER_QUEUE for operator, call in operators_with_calls if call}
    eager_queues = numbered_queues(threads)
    previous_call = None
    for operator, call in operators_with_calls:
        verb = parse_verb(call.name) if call else None
        if call is None or verb is None:
            continue
        kind = KIND_OF_CALL.get(verb.name, "compute")
        # Only the first operator of a call has a launch.
        launch = call.start if call is not previous_call else None
        yield _span(operator, kind, eager_queues[thread_of(operator)], launch)
        previous_call = call


def _of_threads(work: Slices, names: Mapping[TraceThread, str]) -> Spans:
    """Return the spans of a program without verbs: each thread is a queue."""

    def kind(operator: str) -> SpanKind:
        if is_communication(operator):
            return "exchange"
        # Without marks, this is the only copy that can be recognised: to memory that was there.
        return "copy" if operator == "aten::copy_" else "compute"

    queue_of_thread = {thread: ("cpu", names.get(thread, "thread")) for thread in work.threads()}
    return spans_of(work, kind, numbered_queues(queue_of_thread), _readable)


def _under_mark(mark: Mark, queue: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a task's function that runs under a mark, which names the function and the queue."""
    text = task_text(_name_of(fn), queue)
    inner = fn.function if isinstance(fn, Announcing) else fn

    def run(*args: Any) -> Any:
        with mark(text):
            return inner(*args)

    if isinstance(fn, Announcing):
        return Announcing(run)
    return run


def _name_of(fn: Any) -> str:
    """Return the name of a task's function."""
    return function_name(fn.function if isinstance(fn, Announcing) else fn)


def _span(operator: Slice, kind: SpanKind, queue: Queue, launch: int | None) -> Span:
    """Return the span of an operator on a queue, with the time of its launch if that is known."""
    name = operator.name
    return Span(_readable(name), kind, *queue, operator.start, operator.end, launch, name)


@cache
def _readable(operator: str) -> str:
    """Return the name of an operator that this project, and MXNet, give to such an operation."""
    if operator in COPY_OPERATORS:
        return "copy"
    name = operator.removeprefix("autograd::engine::evaluate_function: ")
    # A class that a user derived has template arguments, and `::` also stands in them.
    if "<" in name:
        name = short_names([name])[name]
    else:
        _, _, name = name.rpartition("::")
        name = name.rstrip("_")
    backward = re.fullmatch(r"(\w+)Backward\d*", name)
    if backward is None:
        return READABLE_NAMES.get(name, name)
    forward_name = backward[1]
    return f"{READABLE_NAMES.get(forward_name, forward_name.lower())} backward"
