"""What ran on accelerators, on its device and stream, with the call that launched it."""

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from backends.profiling.chrome_trace.slices import Slices, Trace, TraceThread, coded, recoded
from backends.profiling.collectives import is_communication
from backends.profiling.kernel_names import short_names
from backends.profiling.timeline import KINDS, UNKNOWN, SpanKind, Spans
from backends.torch.kineto.categories import COPIES, MTIA, ON_DEVICE, is_launch

__all__ = ["device_queue", "device_spans", "waits_left_out"]

ACCELERATORS = {MTIA: "mtia", "hpu_op": "hpu"}
"""By category; CUDA's and HIP's are called GPUs."""
LABEL = re.compile(r"\s*(MTIA|XPU|HPU|NPU|MLU|MUSA)\b", re.IGNORECASE)
"""How a process that stands for another accelerator is called."""
WAITS = re.compile(r"event_(?:wait|record)")
"""What MTIA's queues do to wait for each other."""
COPYING = re.compile(r"dma_|memcpy")


def device_spans(slices: Slices, trace: Trace) -> Spans:
    """Return the operations of a trace's devices; `slices` are all of the trace, with the categories of today."""
    work = slices.select(slices.has_category(*ON_DEVICE) & ~_waits(slices))
    if not work:
        return Spans.of(())
    launches = slices.select(slices.has_category(*filter(is_launch, slices.categories)))
    # A number that is used again is the later call's.
    starts: dict[int | str | None, int] = {
        number: start
        for (number,), start in zip(launches.arguments("correlation"), launches.starts.tolist(), strict=True)
        if isinstance(number, int | str)
    }
    arguments = work.arguments("device", "stream", "correlation")
    numbers = (number if isinstance(number, int | str) else None for _, _, number in arguments)
    launched = np.array(
        [starts.get(number, UNKNOWN) if number is not None else UNKNOWN for number in numbers], np.int64
    )
    queue = device_queue(slices, trace)
    named = zip(arguments, work.category_of.tolist(), work.row_of.tolist(), strict=True)
    queues, queue_of = coded(
        queue(device, stream, work.categories[category], work.rows[row]) for (device, stream, _), category, row in named
    )
    operators, operator_of = recoded(work.names, work.name_of, str)
    short = short_names(operators)
    names, name_of = recoded(operators, operator_of, short.__getitem__)
    kinds = _kinds(work)
    return Spans(names, operators, queues, name_of, operator_of, queue_of, kinds, work.starts, work.ends, launched)


def device_queue(slices: Slices, trace: Trace) -> Callable[[object, object, str, TraceThread], tuple[str, str]]:
    """Return the function that names a queue by the arguments `device` and `stream`, the category and the row.

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


def waits_left_out(slices: Slices) -> Iterator[str]:
    """Yield a note if a device's queue holds what is no work."""
    if count := int(_waits(slices).sum()):
        yield f"{count:,} of MTIA's events record or await an event, which is no work, left out."


def _waits(slices: Slices) -> np.ndarray:
    return slices.has_category(MTIA) & slices.has_name({name for name in slices.names if WAITS.match(name)})


def _kinds(work: Slices) -> np.ndarray:
    by_name: Mapping[bool, np.ndarray] = {
        mtia: np.array([KINDS.index(_kind(name, mtia)) for name in work.names], np.int8) for mtia in (False, True)
    }
    kinds = np.where(work.has_category(MTIA), by_name[True][work.name_of], by_name[False][work.name_of])
    return np.where(work.has_category(COPIES), np.int8(KINDS.index("copy")), kinds)


def _kind(name: str, on_mtia: bool) -> SpanKind:
    if on_mtia and COPYING.match(name):
        return "copy"
    return "exchange" if is_communication(name) else "compute"
