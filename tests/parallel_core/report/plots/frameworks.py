"""Timelines made up from numbers, as the frameworks' profilers would show them, for tests of what is drawn of them."""

from collections.abc import Iterator

from backends.profiling import HOST_DEVICE, Span, Timeline, Window

CASES = ("run", "copy", "run and copy together")
PRODUCT, COPY, LAUNCH = 6_000_000, 5_000_000, 30_000
SECOND = 1_000_000_000


def mxnet_async(products: int = 10) -> Timeline:
    """Make products on cpu:1, whose results are copied by cpu:2's only queue while the next ones run."""
    return joined("mxnet 1.9.1, async engine", [overlapped(products, "cpu:2", "compute", case) for case in CASES])


def torch_async(products: int = 10) -> Timeline:
    """Make the same with a queue for copies on the first device."""
    return joined("torch 2.13.0, async engine", [overlapped(products, "cpu:1", "copy", case) for case in CASES])


def torch_sync(products: int = 10) -> Timeline:
    """Make the same on the calling thread alone."""
    return joined("torch 2.13.0, sync engine", [one_by_one(products, case) for case in CASES])


def many_small(count: int = 100_000) -> Timeline:
    """Make increments of 20 μs on two devices: dense on one, with long gaps on the other."""
    spans = []
    for number in range(count // 2):
        at = 25_000 * number
        spans.append(Span("add", "compute", "cpu:1", "compute", at, at + 20_000))
        spans.append(Span("add", "compute", "cpu:2", "compute", at, at + 2_000))
    return Timeline("torch 2.13.0, async engine", tuple(spans), (Window("increments", 0, 25_000 * count),))


def overlapped(products: int, destination: str, queue: str, case: str) -> list[Span]:
    spans = []
    done = copied = host = 0
    for number in range(products):
        if case != "copy":
            spans.append(Span("launch matmul", "host", HOST_DEVICE, "Python", host, host + LAUNCH))
            start = max(done, host + LAUNCH)
            done = start + PRODUCT
            spans.append(Span("matmul", "compute", "cpu:1", "compute", start, done, host, "_npi_matmul"))
            host += LAUNCH
        if case != "run":
            spans.append(Span("copy_to", "host", HOST_DEVICE, "Python", host, host + LAUNCH))
            start = max(copied, done, host + LAUNCH)
            copied = start + COPY
            spans.append(Span(f"copy {number}", "copy", destination, queue, start, copied, host, "CopyCPU2CPU"))
            host += LAUNCH
    spans.append(Span("waitall", "host", HOST_DEVICE, "Python", host, max(done, copied) + LAUNCH))
    return spans


def one_by_one(products: int, case: str) -> list[Span]:
    spans = []
    at = 0
    for _ in range(products):
        if case != "copy":
            spans.append(Span("matmul", "compute", "cpu", "calling thread", at, at + PRODUCT, None, "aten::mm"))
            at += PRODUCT
        if case != "run":
            spans.append(Span("copy", "copy", "cpu", "calling thread", at, at + COPY, None, "aten::copy_"))
            at += COPY
    return spans


def joined(source: str, cases: list[list[Span]]) -> Timeline:
    """Put cases one after the other, half a second apart, as repetitions in one trace are."""
    spans, found = [], []
    begins = SECOND // 2
    for name, of_case in zip(CASES, cases, strict=True):
        moved = list(later(of_case, begins))
        end = max(span.end for span in moved) + 1000
        found.append(Window(name, begins, end))
        spans += moved
        begins = end + SECOND // 2
    return Timeline(source, tuple(sorted(spans, key=lambda span: span.start)), tuple(found))


def later(spans: list[Span], by: int) -> Iterator[Span]:
    for span in spans:
        launched = None if span.launched is None else span.launched + by
        yield span._replace(start=span.start + by, end=span.end + by, launched=launched)
