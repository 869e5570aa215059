"""What ran on accelerators in a trace of Kineto's, PyTorch's tracing library: where, and which call
launched it.

In 2021 Kineto's categories had other names, and steps stood among the operators: both are put in
the words of today. What its plug-ins add keeps its name; what no reader here knows is counted, so
that nothing is left out in silence.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from backends.profiling.collectives import is_communication
from backends.profiling.kernel_names import short_names
from backends.profiling.slices import Slices, Trace, TraceThread, coded, recoded
from backends.profiling.timeline import KINDS, UNKNOWN, SpanKind, Spans

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
    "collective_comm",
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
    """Return whether calls of a category launch work: the runtime's and the driver's, of any
    accelerator.
    """
    return category.endswith(("_runtime", "_driver"))


def in_words_of_today(slices: Slices) -> Slices:
    """Return the same slices with the categories of today; steps are marks, also if they stand
    among operators.
    """
    categories, category_of = recoded(
        slices.categories, slices.category_of, lambda name: SINCE_2021.get(name, name)
    )
    if OPERATORS in categories:
        is_step = slices.has_name({name for name in slices.names if name.startswith(STEP)})
        is_step &= category_of == categories.index(OPERATORS)
        if is_step.any():
            categories = (*categories, MARKS)
            category_of = np.where(is_step, len(categories) - 1, category_of)
    return replace(slices, categories=categories, category_of=category_of)


def left_out(slices: Slices) -> Iterator[str]:
    """Yield a note for each category that no reader here knows."""
    for category, count in slices.counts().items():
        if category and not _is_known(category):
            events = f"{count:,} events" if count > 1 else "1 event"
            yield f"{events} of the category {category!r}, which is not known here, left out."


def _is_known(category: str) -> bool:
    return category in ON_DEVICE | WITHOUT_WORK | {OPERATORS, MARKS} or is_launch(category)


def has_unread_devices(slices: Slices) -> bool:
    """Return whether a process without operators holds what no reader here knows: a device may."""
    unknown = [category for category in slices.categories if not _is_known(category)]
    unread = {process for process, _ in slices.select(slices.has_category(*unknown)).threads()}
    operators = slices.select(slices.has_category(OPERATORS))
    return bool(unread - {process for process, _ in operators.threads()})


def without_category(slices: Slices, trace: Trace) -> Iterator[str]:
    """Yield a note of events that say not what they are, with the processes that they stand in.

    Kineto gives each a category; plug-ins for other accelerators may not.
    """
    nameless = slices.select(slices.has_category(""))
    if not nameless:
        return
    processes = {process for process, _ in nameless.threads()}
    names = sorted(trace.processes.get(process, str(process)) for process in processes)
    yield (
        f"{len(nameless):,} events without a category, of {', '.join(names)}, left out: nothing is "
        "said of what ran there."
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
LAUNCHING = re.compile(r"(?:cuda|hip|cu)\w*LaunchKernel")
"""Calls of the runtime after which something runs on a device; filling no bytes runs nothing."""


def device_spans(slices: Slices, trace: Trace) -> Spans:
    """Return the operations of a trace's devices; `slices` are all of the trace, with the
    categories of today.
    """
    work = slices.select(slices.has_category(*ON_DEVICE) & ~_waits(slices))
    if not work:
        return Spans.of(())
    launches = slices.select(slices.has_category(*filter(is_launch, slices.categories)))
    # A number that is used again is the later call's.
    starts: dict[int | str | None, int] = {
        number: start
        for (number,), start in zip(
            launches.arguments("correlation"), launches.starts.tolist(), strict=True
        )
        if isinstance(number, int | str)
    }
    arguments = work.arguments("device", "stream", "correlation")
    numbers = (number if isinstance(number, int | str) else None for _, _, number in arguments)
    launched = np.array(
        [starts.get(number, UNKNOWN) if number is not None else UNKNOWN for number in numbers],
        np.int64,
    )
    queue = device_queue(slices, trace)
    named = zip(arguments, work.category_of.tolist(), work.row_of.tolist(), strict=True)
    queues, queue_of = coded(
        queue(device, stream, work.categories[category], work.rows[row])
        for (device, stream, _), category, row in named
    )
    operators, operator_of = recoded(work.names, work.name_of, str)
    short = short_names(operators)
    names, name_of = recoded(operators, operator_of, short.__getitem__)
    kinds = _kinds(work)
    return Spans(
        names,
        operators,
        queues,
        name_of,
        operator_of,
        queue_of,
        kinds,
        work.starts,
        work.ends,
        launched,
    )


def device_queue(
    slices: Slices, trace: Trace
) -> Callable[[object, object, str, TraceThread], tuple[str, str]]:
    """Return the function that names a queue by the arguments `device` and `stream`, the category
    and the row.

    Where an argument is None, the row says which: its process is the device, its thread the stream.
    """
    usual = "xpu" if any(category.startswith("xpu_") for category in slices.categories) else "gpu"

    def queue(device: object, stream: object, category: str, row: TraceThread) -> tuple[str, str]:
        process, thread = row
        label = LABEL.match(trace.processes.get(process, ""))
        accelerator = label[1].lower() if label else ACCELERATORS.get(category, usual)
        name = trace.threads.get(row, "").strip().lower() if stream is None else ""
        if not name:
            name = str(thread if stream is None else stream)
            name = name if name.startswith("stream ") else f"stream {name}"
        return f"{accelerator}:{process if device is None else device}", name

    return queue


class Launches(NamedTuple):
    """How many launches a trace holds, and how many of them lack their operation on a device."""

    total: int
    missing: int
    missing_at_the_end: int
    """Those after the last launch whose operation is in the trace: the recording had ended."""


def launches_of(slices: Slices) -> Launches:
    """Count a trace's launches, in the order of time."""
    calling = slices.has_category(*filter(is_launch, slices.categories)) & slices.has_name(
        {name for name in slices.names if LAUNCHING.match(name)}
    )
    launched = [number for (number,) in slices.select(calling).arguments("correlation")]
    work = slices.select(slices.has_category(*ON_DEVICE))
    ran = {number for (number,) in work.arguments("correlation") if isinstance(number, int | str)}
    have_run = [number in ran for number in launched if isinstance(number, int | str)]
    at_the_end = have_run[::-1].index(True) if True in have_run else 0
    return Launches(len(have_run), have_run.count(False), at_the_end)


def exchanges_by_nccl(slices: Slices) -> bool:
    """Return whether annotations say that NCCL exchanged, and no kernel of its is here."""
    announced = slices.has_category(MARKS) & slices.has_name(
        {name for name in slices.names if name.startswith("nccl:")}
    )
    ran = slices.has_category(*ON_DEVICE) & slices.has_name(
        {name for name in slices.names if is_communication(name)}
    )
    return bool(announced.any()) and not ran.any()


def lacks_devices(slices: Slices) -> bool:
    """Return whether a program used devices whose operations are missing, or could not be read."""
    return (
        launches_of(slices).missing > 0 or exchanges_by_nccl(slices) or has_unread_devices(slices)
    )


def missing_operations(slices: Slices) -> Iterator[str]:
    """Yield notes if launches or exchanges lack their operations: what the devices did is then not
    known.
    """
    if exchanges_by_nccl(slices):
        yield (
            "NCCL's annotations are here and its kernels are not: no exchange was recorded, and "
            "launching one is not exchanging"
        )
    launches = launches_of(slices)
    if launches.missing == launches.total > 0:
        yield (
            f"{launches.total:,} launches have no operation on a device: nothing is known of the "
            "GPU, and a host's share says nothing of it"
        )
        return
    if launches.missing_at_the_end:
        yield (
            f"{launches.missing_at_the_end:,} of {launches.total:,} launches, the last, have no "
            "operation here: the recording ended before"
        )
    if others := launches.missing - launches.missing_at_the_end:
        yield (
            f"{others:,} of {launches.total:,} launches have no operation on a device: what the "
            "GPU did is not all here"
        )


def waits_left_out(slices: Slices) -> Iterator[str]:
    """Yield a note if a device's queue holds what is no work."""
    if count := int(_waits(slices).sum()):
        yield f"{count:,} of MTIA's events record or await an event, which is no work, left out."


def _waits(slices: Slices) -> np.ndarray:
    return slices.has_category(MTIA) & slices.has_name(
        {name for name in slices.names if WAITS.match(name)}
    )


def _kinds(work: Slices) -> np.ndarray:
    by_name: Mapping[bool, np.ndarray] = {
        mtia: np.array([KINDS.index(_kind(name, mtia)) for name in work.names], np.int8)
        for mtia in (False, True)
    }
    kinds = np.where(
        work.has_category(MTIA), by_name[True][work.name_of], by_name[False][work.name_of]
    )
    return np.where(work.has_category(COPIES), np.int8(KINDS.index("copy")), kinds)


def _kind(name: str, on_mtia: bool) -> SpanKind:
    if on_mtia and COPYING.match(name):
        return "copy"
    if COPYING_KERNEL.match(name):
        return "copy"
    return "exchange" if is_communication(name) else "compute"
