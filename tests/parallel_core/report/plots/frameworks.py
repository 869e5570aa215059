"""Timelines made up from numbers, as the frameworks' profilers would show them, for tests of what
is drawn of them.
"""

from dataclasses import replace

from backends.profiling import HOST_DEVICE, Span, SpanKind, Timeline, Window
from tests.parallel_core.traces.synthetic import FIRST, JOINT, SECOND, overlap_timeline

CASES = ("run", "copy", JOINT)
PRODUCT, COPY = 6e-3, 5e-3
KINDS: tuple[SpanKind, ...] = ("compute", "compute", "copy", "exchange")
"""Of operations on devices; what stands twice is twice as frequent."""


def mxnet_async(products: int = 10) -> Timeline:
    """Make products on cpu:1, whose results are copied by cpu:2's only queue while the next ones
    run.
    """
    timeline = overlap_timeline(products=products, product=PRODUCT, copy=COPY)
    spans = tuple(
        span._replace(operator="_npi_matmul") if span.name == "matmul" else span
        for span in timeline.spans
    )
    return replace(timeline, source="mxnet 1.9.1, async engine", spans=spans)


def torch_async(products: int = 10) -> Timeline:
    """Make the same with a queue for copies on the first device."""
    timeline = overlap_timeline(products=products, product=PRODUCT, copy=COPY)
    spans = tuple(
        span._replace(device=FIRST, queue="copy") if span.device == SECOND else span
        for span in timeline.spans
    )
    return replace(timeline, source="torch 2.13.0, async engine", spans=spans)


def torch_sync(products: int = 10) -> Timeline:
    """Make the same on the calling thread alone."""
    timeline = overlap_timeline(products=products, product=PRODUCT, copy=COPY, synchronous=True)
    spans = tuple(span for span in timeline.spans if span.kind != "host")
    return replace(timeline, source="torch 2.13.0, sync engine", spans=spans)


def many_small(count: int = 100_000) -> Timeline:
    """Make increments of 20 μs on two devices: dense on one, with long gaps on the other."""
    spans = []
    for number in range(count // 2):
        start = 25_000 * number
        spans.append(Span("add", "compute", FIRST, "compute", start, start + 20_000))
        spans.append(Span("add", "compute", SECOND, "compute", start, start + 2_000))
    case = Window("increments", 0, 25_000 * count)
    return Timeline("torch 2.13.0, async engine", tuple(spans), (case,))


def many_queues(count: int) -> Timeline:
    """Make spans of many lengths on three queues of each of eight GPUs, and on six threads with
    long names.
    """
    threads = [(HOST_DEVICE, f"pt_data_worker {140234567 + number}") for number in range(6)]
    streams = [(f"gpu:{gpu}", f"stream {7 + number}") for gpu in range(8) for number in range(3)]
    queues = [*threads, *streams]
    spans = []
    for number in range(count):
        device, queue = queues[number % len(queues)]
        kind: SpanKind = "host" if device == HOST_DEVICE else KINDS[number % 7 % len(KINDS)]
        kernel = f"void at::native::kernel_{number % 199}<float, {number % 7}>"
        start = 5000 * number
        length = 100 + 7919 * number % 140_000
        spans.append(Span(kernel, kind, device, queue, start, start + length))
    return Timeline("made up", spans)
