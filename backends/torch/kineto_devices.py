"""What ran on accelerators in a trace of Kineto's, PyTorch's tracing library: where, and which call
launched it.

In 2021 Kineto's categories had other names, and steps stood among the operators: both are put in
the words of today. What its plug-ins add keeps its name; what no reader here knows is counted, so
that nothing is left out in silence.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from backends.profiling.collectives import BETWEEN_DEVICES, is_communication
from backends.profiling.doubts import Doubt
from backends.profiling.kernel_names import short_names
from backends.profiling.slices import Slices, Trace, TraceThread, coded, recoded
from backends.profiling.timeline import KINDS, UNKNOWN, Queue, SpanKind, Spans
from backends.profiling.trace_events import events_in_words

OPERATORS, MARKS = "cpu_op", "user_annotation"
STEP = "ProfilerStep#"
ANNOTATIONS_ON_DEVICE = "gpu_user_annotation"
"""From the first to the last operation that an annotation launched, as Kineto reckons it."""
COPIES, MTIA = "gpu_memcpy", "mtia_ccp_events"
ON_DEVICE = {"kernel", COPIES, "gpu_memset", MTIA, "hpu_op"}
"""Work on accelerators: CUDA's, HIP's and XPU's have the same names, Meta's MTIA and Habana's HPU
their own.
"""
WITHOUT_WORK = {
    ANNOTATIONS_ON_DEVICE,
    "Trace",
    "cpu_instant_event",
    "cuda_event",
    "cuda_sync",
    "overhead",
    "python_function",
    "xpu_sync",
}
"""What else Kineto writes of the host, of events and of itself."""
SINCE_2021 = {
    "Kernel": "kernel",
    "Memcpy": COPIES,
    "Memset": "gpu_memset",
    "Operator": OPERATORS,
    "Runtime": "cuda_runtime",
}


def is_launch(category: str) -> bool:
    """Return whether a category holds the calls of an accelerator's runtime or driver.

    They are the calls that launch work.
    """
    return category.endswith(("_runtime", "_driver"))


def in_words_of_today(slices: Slices) -> Slices:
    """Return the same slices with the categories of today.

    Steps that stand among operators, as in 2021, become marks.
    """
    categories, category_of = recoded(
        slices.categories, slices.category_of, lambda name: SINCE_2021.get(name, name)
    )
    if OPERATORS in categories:
        is_operator = category_of == categories.index(OPERATORS)
        is_step = slices.named(lambda name: name.startswith(STEP)) & is_operator
        if is_step.any():
            categories = (*categories, MARKS)
            category_of = np.where(is_step, len(categories) - 1, category_of)
    return replace(slices, categories=categories, category_of=category_of)


def left_out(slices: Slices) -> Iterator[Doubt]:
    """Yield a note for each category that no reader here knows."""
    for category, count in slices.counts().items():
        if category and not _is_known(category):
            events = events_in_words(count)
            yield Doubt(
                "unknown-category",
                f"{events} of the category {category!r}, which is not known here, left out.",
            )


def _is_known(category: str) -> bool:
    """Return whether a reader here knows a category."""
    if category in (OPERATORS, MARKS) or is_launch(category):
        return True
    return category in ON_DEVICE or category in WITHOUT_WORK


def has_unread_devices(slices: Slices) -> bool:
    """Return whether a process may be a device that no reader here knows.

    Such a process holds events of an unknown category, and no operators.
    """
    unknown_categories = [category for category in slices.categories if not _is_known(category)]
    unknown = slices.select(slices.has_category(*unknown_categories))
    operators = slices.select(slices.has_category(OPERATORS))
    processes_of_unknown = {process for process, _ in unknown.threads()}
    processes_of_operators = {process for process, _ in operators.threads()}
    return not processes_of_unknown <= processes_of_operators


def without_category(slices: Slices, trace: Trace) -> Iterator[Doubt]:
    """Yield a note if events have no category, with the processes of these events.

    Kineto gives every event a category; plug-ins for other accelerators may not.
    """
    nameless = slices.select(slices.has_category(""))
    if not nameless:
        return
    processes = {process for process, _ in nameless.threads()}
    names = sorted(trace.processes.get(process, str(process)) for process in processes)
    yield Doubt(
        "no-category",
        f"{len(nameless):,} events without a category, of {', '.join(names)}, left out: nothing is "
        "said of what ran there.",
    )


ACCELERATORS = {MTIA: "mtia", "hpu_op": "hpu"}
"""By category; CUDA's and HIP's are called GPUs."""
LABEL = re.compile(r"\s*(MTIA|XPU|HPU|NPU|MLU|MUSA)\b", re.IGNORECASE)
"""How a process that stands for another accelerator is called."""
WAITS = re.compile(r"event_(?:wait|record)")
"""What MTIA's queues do to wait for each other."""
COPYING = re.compile(r"dma_|memcpy")
COPYING_KERNEL = re.compile(r"__amd_rocclr_copy")
"""From version 7.1 on, ROCm copies by kernels of its own."""
LAUNCHING = re.compile(
    r"(?:cuda|hip|cu|musa|mu)\w*(?:Launch\w*Kernel|GraphLaunch)"
    r"|(?:ur|pi|ze)\w*(?:KernelLaunch|LaunchKernel)"
)
"""Calls of the runtime after which something runs on a device; filling no bytes runs nothing."""
GRAPH = re.compile(r"\w+GraphLaunch")
BEGIN_CAPTURE = re.compile(r"(?:cuda|hip|cu|musa|mu)StreamBeginCapture")
END_CAPTURE = re.compile(r"(?:cuda|hip|cu|musa|mu)StreamEndCapture")


def device_spans(slices: Slices, trace: Trace) -> Spans:
    """Return the spans of the operations on a trace's devices.

    `slices` are all slices of the trace, with the categories of today.
    """
    work = slices.select(slices.has_category(*ON_DEVICE) & ~_waits(slices))
    if not work:
        return Spans.of(())
    name_of_queue = device_queue(slices, trace)
    arguments = work.arguments("device", "stream", "correlation")
    categories = [work.categories[category] for category in work.category_of.tolist()]
    rows = [work.rows[row] for row in work.row_of.tolist()]
    queues, queue_of = coded(
        name_of_queue(device, stream, category, row)
        for (device, stream, _), category, row in zip(arguments, categories, rows, strict=True)
    )
    correlations = [correlation for _, _, correlation in arguments]
    operators, operator_of = recoded(work.names, work.name_of, str)
    short_name_of = short_names(operators)
    names, name_of = recoded(operators, operator_of, short_name_of.__getitem__)
    return Spans(
        names,
        operators,
        queues,
        name_of,
        operator_of,
        queue_of,
        _kinds(work),
        work.starts,
        work.ends,
        _launch_times(correlations, slices),
    )


def _launch_times(correlations: Sequence[object], slices: Slices) -> np.ndarray:
    """Return when the operations with these correlation numbers were launched.

    UNKNOWN stands for an operation whose number no launch has.
    """
    launches = slices.select(slices.has_category(*filter(is_launch, slices.categories)))
    start_of: dict[object, int] = {}
    numbers = launches.arguments("correlation")
    for (number,), start in zip(numbers, launches.starts.tolist(), strict=True):
        if isinstance(number, int | str):
            # A number that is used again is the later call's.
            start_of[number] = start

    def launch_time(correlation: object) -> int:
        # Other values may be lists, which no dict takes.
        if isinstance(correlation, int | str):
            return start_of.get(correlation, UNKNOWN)
        return UNKNOWN

    return np.array([launch_time(correlation) for correlation in correlations], np.int64)


def device_queue(
    slices: Slices, trace: Trace
) -> Callable[[object, object, str, TraceThread], Queue]:
    """Return a function that names the queue of an operation on a device.

    The function takes the operation's arguments `device` and `stream`, its category and its row. If
    an argument is None, the row's process stands for the device, and its thread for the stream.
    """
    has_xpu = any(category.startswith("xpu_") for category in slices.categories)
    usual_accelerator = "xpu" if has_xpu else "gpu"

    def queue(device: object, stream: object, category: str, row: TraceThread) -> Queue:
        """Return the device and the name of the queue that an operation ran on."""
        process, thread = row
        accelerator = ACCELERATORS.get(category, usual_accelerator)
        label = LABEL.match(trace.processes.get(process, ""))
        if label is not None:
            accelerator = label[1].lower()
        index = process if device is None else device
        device_name = f"{accelerator}:{index}"
        if stream is not None:
            return device_name, _stream_name(stream)
        thread_name = trace.threads.get(row, "").strip().lower()
        return device_name, thread_name or _stream_name(thread)

    return queue


def _stream_name(stream: object) -> str:
    """Return the name of a stream, whose number may have the word before it already."""
    text = str(stream)
    return text if text.startswith("stream ") else f"stream {text}"


def capture_times(slices: Slices) -> np.ndarray:
    """Return when threads captured graphs, (n, 2): what is launched then runs later, if at all."""
    is_capture = slices.named(BEGIN_CAPTURE.match) | slices.named(END_CAPTURE.match)
    times = []
    began: dict[TraceThread, int] = {}
    for call in slices.select(is_capture):
        thread = call.process, call.thread
        if BEGIN_CAPTURE.match(call.name):
            began[thread] = call.start
        else:
            # Before the recording began, or within it.
            times.append((began.pop(thread, 0), call.end))
    latest_end = int(slices.ends.max(initial=0))
    times += [(start, latest_end) for start in began.values()]
    return np.array(times, np.int64).reshape(-1, 2)


class Launches(NamedTuple):
    """How many launches a trace holds, without those that a graph captures, and how many of them
    lack their operation on a device.
    """

    total: int
    missing: int
    missing_at_the_end: int
    """Those after the last launch whose operation is in the trace: the recording had ended."""


def launches_of(slices: Slices) -> Launches:
    """Count a trace's launches, and those whose operation on a device is missing."""
    launch_categories = list(filter(is_launch, slices.categories))
    launches = slices.select(
        slices.has_category(*launch_categories) & slices.named(LAUNCHING.match)
    )
    operations = slices.select(slices.has_category(*ON_DEVICE))
    arguments = operations.arguments("correlation")
    numbers_run = {number for (number,) in arguments if isinstance(number, int | str)}
    captures = capture_times(slices)
    has_run: list[bool] = []
    for launch, (number,) in zip(launches, launches.arguments("correlation"), strict=True):
        if not isinstance(number, int | str):
            continue
        is_captured = np.any((captures[:, 0] <= launch.start) & (launch.start < captures[:, 1]))
        # HIP may give a graph's operations other numbers than the launch.
        may_run = GRAPH.match(launch.name) and np.any(operations.starts >= launch.start)
        if number in numbers_run:
            has_run.append(True)
        elif not is_captured and not may_run:
            has_run.append(False)
    missing_at_the_end = 0
    if any(has_run):
        # From the end, the launches before the first one whose operation has run.
        from_the_end = has_run[::-1]
        missing_at_the_end = from_the_end.index(True)
    return Launches(
        total=len(has_run),
        missing=has_run.count(False),
        missing_at_the_end=missing_at_the_end,
    )


def exchanges_by_nccl(slices: Slices) -> bool:
    """Return whether annotations say that NCCL exchanged, and the trace has no kernel of NCCL's."""
    is_of_nccl = slices.named(lambda name: name.startswith("nccl:"))
    is_annotation = slices.has_category(MARKS) & is_of_nccl
    is_kernel = slices.has_category(*ON_DEVICE) & slices.named(is_communication)
    return bool(is_annotation.any()) and not is_kernel.any()


def lacks_devices(slices: Slices) -> bool:
    """Return whether a program used devices whose operations are missing, or could not be read."""
    launches = {name for name in slices.names if LAUNCHING.match(name)}
    return bool(launches) or exchanges_by_nccl(slices) or has_unread_devices(slices)


def missing_operations(slices: Slices) -> Iterator[Doubt]:
    """Yield notes if launches or exchanges lack their operations on devices."""
    if exchanges_by_nccl(slices):
        yield Doubt(
            "exchanges-unrecorded",
            "NCCL's annotations are here and its kernels are not: no exchange was recorded, and "
            "launching one is not exchanging",
        )
    launches = launches_of(slices)
    if launches.total > 0 and launches.missing == launches.total:
        yield Doubt(
            "device-unrecorded",
            f"{launches.total:,} launches have no operation on a device: nothing is known of the "
            "GPU, and a host's share says nothing of it",
        )
        return
    if launches.missing_at_the_end:
        yield Doubt(
            "ended-before-operations",
            f"{launches.missing_at_the_end:,} of {launches.total:,} launches, the last, have no "
            "operation here: the recording ended before",
        )
    missing_before = launches.missing - launches.missing_at_the_end
    if missing_before:
        yield Doubt(
            "launches-without-operations",
            f"{missing_before:,} of {launches.total:,} launches have no operation on a device: "
            "what the GPU did is not all here",
        )


def waits_left_out(slices: Slices) -> Iterator[Doubt]:
    """Yield a note if a device's queue holds waits, which are no work."""
    count = int(_waits(slices).sum())
    if count:
        yield Doubt(
            "waits-left-out",
            f"{count:,} of MTIA's events record or await an event, which is no work, left out.",
        )


def _waits(slices: Slices) -> np.ndarray:
    """Return which slices are waits of MTIA's queues."""
    return slices.has_category(MTIA) & slices.named(WAITS.match)


def _kinds(work: Slices) -> np.ndarray:
    """Return the kind of each operation on a device, as a position in KINDS."""
    kinds_on_mtia = _kinds_of_names(work.names, on_mtia=True)[work.name_of]
    kinds_elsewhere = _kinds_of_names(work.names, on_mtia=False)[work.name_of]
    kinds = np.where(work.has_category(MTIA), kinds_on_mtia, kinds_elsewhere)
    is_copy = work.has_category(COPIES) & ~work.named(BETWEEN_DEVICES.match)
    return np.where(is_copy, np.int8(KINDS.index("copy")), kinds)


def _kinds_of_names(names: Sequence[str], on_mtia: bool) -> np.ndarray:
    """Return the kind of an operation of each name, as a position in KINDS."""
    return np.array([KINDS.index(_kind(name, on_mtia)) for name in names], np.int8)


def _kind(name: str, on_mtia: bool) -> SpanKind:
    """Return the kind of an operation by its name."""
    if on_mtia and COPYING.match(name):
        return "copy"
    if COPYING_KERNEL.match(name):
        return "copy"
    if is_communication(name) or BETWEEN_DEVICES.match(name):
        return "exchange"
    return "compute"
