"""JAX's own profiler.

Read it beside `backends/mxnet/profiler.py`: the same functions, in the same order. XLA records each
kernel with its program and the number of the run, and a program's name says its device, because the
clients that serve devices are alike in a trace. A span is a run of a program, from its first kernel
to its last. Of copies XLA records only that a thread of a pool was at work: such work without a
kernel counts as copying. On the synchronous engine a copy is a part of the call.
"""

import gzip
import re
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from backends.devices import Device
from backends.errors import BackendError
from backends.host import release_freed_memory
from backends.jax.program_trace import HOST, timeline_of_program
from backends.profiling.marks import Mark, marking_verbs, parse_case, parse_verb, queue_device
from backends.profiling.readers import ChromeReader
from backends.profiling.slices import Slices, Trace, TraceThread
from backends.profiling.threads_of_trace import (
    assemble,
    host_spans,
    numbered_queues,
    outermost_calls,
    thread_of,
    windows,
)
from backends.profiling.timeline import Span, SpanKind, Spans, Timeline
from backends.protocol import Backend

KERNEL, POOL = "hlo_module", "tf_XLAPjRtCpuClient"
BEGIN, END, TO_HOST = (
    "ThreadpoolListener::StartRegion",
    "ThreadpoolListener::StopRegion",
    "D2H Dispatch",
)
PUT = "DevicePutWithSharding"
"""A copy on the thread that calls."""
PROGRAM = re.compile(r"(?:jit_)?(.*)_on_([cg]pu)_(\d+)")
READABLE_NAMES = {"to_host": "copy", "total": "sum"}
"""What PyTorch calls the same."""
COPIES = (
    "XLA's profile names no copies: what a pool's threads do without a kernel counts as copying, "
    "on the device whose "
    "programs run there, be it the copy's source or its destination"
)


def check(backend: Backend) -> None:
    """Raise BackendError on GPUs: what JAX's profiler writes of our verbs there was never read."""
    if backend.devices[0].kind == "gpu":
        raise BackendError("jax is profiled on CPUs only: use --device-kind cpu")


@contextmanager
def profile(backend: Backend, path: Path) -> Iterator[Mark]:
    """Run JAX's profiler, whose trace is moved to `path` at the end; gives a `Mark`."""
    import jax

    options = jax.profiler.ProfileOptions()
    # Calls of Python's functions would be most of the trace.
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory(prefix="parallel-core-") as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            with marking_verbs(
                backend, jax.profiler.TraceAnnotation, partial(queue_device, backend, jax.Array)
            ):
                yield _mark
        finally:
            jax.profiler.stop_trace()
            (written,) = Path(folder).rglob("*.trace.json.gz")
            path.write_bytes(gzip.decompress(written.read_bytes()))


@contextmanager
def _mark(text: str) -> Iterator[None]:
    import jax

    with jax.profiler.TraceAnnotation(text):
        yield
    # Its events take the small pieces that malloc leaves beside an array with an aligned address.
    # Freed, the array's memory is then too small for the next one: a process that copied for
    # seconds was ended for want of memory.
    release_freed_memory()


def is_from(trace: Trace) -> bool:
    """Return whether JAX's profiler wrote a trace, of whatever program."""
    return any(name.startswith((HOST, "/device:")) for name in trace.processes.values())


def timeline_of(trace: Trace) -> Timeline:
    """Read what JAX's profiler wrote.

    Each device has a queue of programs, and one of copies for each thread.
    """
    slices = trace.columns
    marks = list(
        slices.select(
            slices.has_name({name for name in slices.names if parse_verb(name) or parse_case(name)})
        )
    )
    if not marks:
        return timeline_of_program(trace)
    host = host_spans(outermost_calls(marks))
    runs, threads = _runs(slices)
    queues = _queues_of_pools(trace, threads)
    copies = _copies_on(queues, slices) if queues else _copies_within(host, slices)
    notes = [*trace.problems, *([COPIES] if queues and copies else [])]
    parts = map(Spans.of, (host, _linked(runs, host), copies))
    return assemble("jax", parts, windows(marks), notes, {span.device for span in runs})


READER = ChromeReader(is_from, timeline_of)


def plain(name: str) -> str:
    """Return a function's name in the characters that XLA keeps."""
    return re.sub(r"\W+", "_", name).strip("_")


def program_name(function: str, device: Device) -> str:
    """Name the program of a function on a device."""
    return f"{plain(function)}_on_{device.kind}_{device.index}"


def parse_program(name: str) -> tuple[str, str] | None:
    """Return the function and the device of a program, `relu` and `cpu:1`.

    None for other programs.
    """
    match = PROGRAM.fullmatch(name)
    return match and (match[1], f"{match[2]}:{match[3]}")


def _runs(slices: Slices) -> tuple[list[Span], dict[TraceThread, str]]:
    """Return the runs of programs in the order of their launch, and the device of each thread that
    computed.
    """
    kernels: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    # A run's number says nothing of other programs' runs, but a device begins them in the order of
    # their launch.
    programs: dict[int, tuple[str, str]] = {}
    threads: dict[TraceThread, str] = {}
    for one, (program, run, operator) in zip(
        slices, slices.arguments(KERNEL, "run_id", "hlo_op"), strict=True
    ):
        parsed = parse_program(str(program))
        if parsed and run is not None:
            programs[int(run)] = parsed
            _, device = parsed
            threads.setdefault(thread_of(one), device)
            kernels[int(run)].append((str(operator), one.start, one.end))
    spans = []
    for run, (name, device) in programs.items():
        operators, starts, ends = zip(*kernels[run], strict=True)
        kind: SpanKind = "copy" if name == "to_host" else "compute"
        shown = READABLE_NAMES.get(name, name)
        all_of_them = ", ".join(dict.fromkeys(operators))
        spans.append(
            Span(shown, kind, device, "compute", min(starts), max(ends), operator=all_of_them)
        )
    return spans, threads


def _linked(runs: Sequence[Span], host: Sequence[Span]) -> Iterator[Span]:
    """Link runs with calls: those of a device and name are launched and numbered in one order, if
    all are there.
    """
    calls: dict[tuple[str, str], list[int]] = defaultdict(list)
    for call in sorted(host, key=lambda call: call.start):
        parsed = parse_verb(call.operator)
        if parsed and parsed.name.startswith("launch "):
            name = plain(parsed.name.removeprefix("launch "))
            calls[parsed.device, READABLE_NAMES.get(name, name)].append(call.start)
    counts = Counter((run.device, run.name) for run in runs)
    begun: Counter[tuple[str, str]] = Counter()
    for run in runs:
        function = run.device, run.name
        starts = calls[function]
        launched = starts[begun[function]] if counts[function] == len(starts) else None
        begun[function] += 1
        yield run if launched is None or launched > run.start else run._replace(launched=launched)


def _queues_of_pools(
    trace: Trace, devices: Mapping[TraceThread, str]
) -> Mapping[TraceThread, tuple[str, str]]:
    """Return a queue of copies for each pool's thread that computed.

    The synchronous engine's pools compute nothing.
    """
    pools = {thread for thread, name in trace.threads.items() if POOL in name}
    return numbered_queues(
        {thread: (device, "copy") for thread, device in devices.items() if thread in pools}
    )


def _copies_on(queues: Mapping[TraceThread, tuple[str, str]], slices: Slices) -> list[Span]:
    """Return what the threads of pools did without a kernel."""
    begins: dict[TraceThread, int] = {}
    copies = []
    for one in slices.select(slices.on_threads(queues)):
        thread = thread_of(one)
        if one.name == BEGIN:
            begins[thread] = one.end
        elif one.name == END and thread in begins:
            copies.append(Span("copy", "copy", *queues[thread], begins.pop(thread), one.start))
        elif one.name == TO_HOST or b"hlo_op" in one.raw_args:
            begins.pop(thread, None)
    return copies


def _copies_within(host: Sequence[Span], slices: Slices) -> list[Span]:
    """Return a copy for each call that names a device and copied on its own thread: from its first
    one to its last.
    """
    calls = sorted(host, key=lambda call: call.start)
    begun = [call.start for call in calls]
    by_call: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in slices.select(slices.has_name({PUT})):
        by_call[bisect_right(begun, one.start) - 1].append((one.start, one.end))
    copies = []
    for place, own in by_call.items():
        parsed = parse_verb(calls[place].operator) if place >= 0 else None
        if parsed and parsed.name == "copy_to":
            start, end = min(start for start, _ in own), max(end for _, end in own)
            copies.append(Span("copy", "copy", parsed.device, "copy", start, end))
    return copies
