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
from backends.profiling.doubts import Doubt
from backends.profiling.marks import Mark, marking_verbs, parse_case, parse_verb, queue_device
from backends.profiling.readers import ChromeReader
from backends.profiling.slices import Slice, Slices, Trace, TraceThread
from backends.profiling.threads_of_trace import (
    assemble,
    host_spans,
    numbered_queues,
    outermost_calls,
    thread_of,
    windows,
)
from backends.profiling.timeline import Queue, Span, SpanKind, Spans, Timeline
from backends.protocol import Backend

KERNEL, POOL = "hlo_module", "tf_XLAPjRtCpuClient"
BEGIN, END, TO_HOST = (
    "ThreadpoolListener::StartRegion",
    "ThreadpoolListener::StopRegion",
    "D2H Dispatch",
)
PUT = "DevicePutWithSharding"
"""The name of an event: a copy on the thread that calls."""
PROGRAM = re.compile(r"(?:jit_)?(.*)_on_([cg]pu)_(\d+)")
READABLE_NAMES = {"to_host": "copy", "total": "sum"}
"""The names by which PyTorch calls these functions."""
POOLS_COPY = Doubt(
    "pools-copy",
    "XLA's profile names no copies: what a pool's threads do without a kernel counts as copying, "
    "on the device whose programs run there, be it the copy's source or its destination",
)


def check(backend: Backend) -> None:
    """Raise BackendError on GPUs: what JAX's profiler writes of our verbs there was never read."""
    if backend.devices[0].kind == "gpu":
        raise BackendError("jax is profiled on CPUs only: use --device-kind cpu")


@contextmanager
def profile(backend: Backend, path: Path) -> Iterator[Mark]:
    """Run JAX's profiler within a `with` block, and move its trace to `path` at the end.

    The block gets a `Mark`.
    """
    import jax

    options = jax.profiler.ProfileOptions()
    # Calls of Python's functions would be most of the trace.
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory(prefix="parallel-core-") as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        device_of = partial(queue_device, backend, jax.Array)
        try:
            with marking_verbs(backend, jax.profiler.TraceAnnotation, device_of):
                yield _mark
        finally:
            jax.profiler.stop_trace()
            (written,) = Path(folder).rglob("*.trace.json.gz")
            path.write_bytes(gzip.decompress(written.read_bytes()))


@contextmanager
def _mark(text: str) -> Iterator[None]:
    """Mark in the trace what the calling thread does within a `with` block."""
    import jax

    with jax.profiler.TraceAnnotation(text):
        yield
    # The profiler's events take the small pieces of memory that malloc leaves beside an aligned
    # array. When the array is freed, its memory is then too small for the next aligned one: a
    # process that copied for seconds ran out of memory.
    release_freed_memory()


def is_from(trace: Trace) -> bool:
    """Return whether JAX's profiler wrote a trace, of whatever program."""
    return any(name.startswith((HOST, "/device:")) for name in trace.processes.values())


def timeline_of(trace: Trace) -> Timeline:
    """Return the timeline of a trace that JAX's profiler wrote.

    Each device has a queue of programs, and one of copies for each thread.
    """
    slices = trace.columns
    marks = list(slices.select(slices.named(parse_verb) | slices.named(parse_case)))
    if not marks:
        return timeline_of_program(trace)
    host = host_spans(outermost_calls(marks))
    runs, device_of_thread = _runs(slices)
    # Each pool's thread that computed has a queue of copies; the synchronous engine's pools compute
    # nothing.
    queue_of_thread: dict[TraceThread, Queue] = {}
    for thread, device in device_of_thread.items():
        if POOL in trace.threads.get(thread, ""):
            queue_of_thread[thread] = (device, "copy")
    queues = numbered_queues(queue_of_thread)
    notes = list(trace.problems)
    if queues:
        copies = _copies_on(queues, slices)
        if copies:
            notes.append(POOLS_COPY)
    else:
        copies = _copies_within(host, slices)
    spans = [Spans.of(host), Spans.of(_linked(runs, host)), Spans.of(copies)]
    devices = {run.device for run in runs}
    return assemble("jax", spans, windows(marks), notes, devices)


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
    if match is None:
        return None
    function, kind, index = match.groups()
    return function, f"{kind}:{index}"


def _runs(slices: Slices) -> tuple[list[Span], dict[TraceThread, str]]:
    """Return programs' runs in the order of their launch, and each computing thread's device."""
    # The kernels of each run: operator, start and end.
    kernels_of_run: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    # In the order in which the runs' first kernels begin: that is the order of launching on each
    # device. The numbers of runs say nothing about the order of different programs.
    program_of_run: dict[int, tuple[str, str]] = {}
    device_of_thread: dict[TraceThread, str] = {}
    arguments = slices.arguments(KERNEL, "run_id", "hlo_op")
    for kernel, (program_text, run, operator) in zip(slices, arguments, strict=True):
        program = parse_program(str(program_text))
        if program is None or run is None:
            continue
        _, device = program
        program_of_run[int(run)] = program
        device_of_thread.setdefault(thread_of(kernel), device)
        kernels_of_run[int(run)].append((str(operator), kernel.start, kernel.end))
    spans = []
    for run, (function, device) in program_of_run.items():
        kernels = kernels_of_run[run]
        start = min(start for _, start, _ in kernels)
        end = max(end for _, _, end in kernels)
        operators = ", ".join(dict.fromkeys(operator for operator, _, _ in kernels))
        kind: SpanKind = "copy" if function == "to_host" else "compute"
        name = READABLE_NAMES.get(function, function)
        span = Span(name, kind, device, "compute", start, end, operator=operators)
        spans.append(span)
    return spans, device_of_thread


def _linked(runs: Sequence[Span], host: Sequence[Span]) -> Iterator[Span]:
    """Yield the runs, linked to the calls that launched them.

    The runs of a device and a name begin in the order of their calls. So they are linked if there
    are as many calls as runs.
    """
    launches: dict[tuple[str, str], list[int]] = defaultdict(list)
    for call in sorted(host, key=lambda call: call.start):
        verb = parse_verb(call.operator)
        if verb and verb.name.startswith("launch "):
            function = plain(verb.name.removeprefix("launch "))
            name = READABLE_NAMES.get(function, function)
            launches[verb.device, name].append(call.start)
    run_counts = Counter((run.device, run.name) for run in runs)
    runs_before: Counter[tuple[str, str]] = Counter()
    for run in runs:
        key = run.device, run.name
        launch_times = launches[key]
        linked_run = run
        if len(launch_times) == run_counts[key]:
            launched = launch_times[runs_before[key]]
            if launched <= run.start:
                linked_run = run._replace(launched=launched)
        runs_before[key] += 1
        yield linked_run


def _copies_on(queues: Mapping[TraceThread, Queue], slices: Slices) -> list[Span]:
    """Return the times in which the threads of pools worked without a kernel, as copies."""
    begins: dict[TraceThread, int] = {}
    copies = []
    for event in slices.select(slices.on_threads(queues)):
        thread = thread_of(event)
        is_kernel = b"hlo_op" in event.raw_args
        if event.name == BEGIN:
            # The thread works from the end of this event to the start of the END.
            begins[thread] = event.end
        elif event.name == END and thread in begins:
            begin = begins.pop(thread)
            copies.append(Span("copy", "copy", *queues[thread], begin, event.start))
        elif is_kernel or event.name == TO_HOST:
            # The work that has begun is no copy between devices.
            begins.pop(thread, None)
    return copies


def _copies_within(host: Sequence[Span], slices: Slices) -> list[Span]:
    """Return a copy for each `copy_to` that copied on its own thread, from its first array on."""
    calls = sorted(host, key=lambda call: call.start)
    call_starts = [call.start for call in calls]
    puts_of_call: dict[int, list[Slice]] = defaultdict(list)
    for put in slices.select(slices.has_name({PUT})):
        call_position = bisect_right(call_starts, put.start) - 1
        if call_position >= 0:
            puts_of_call[call_position].append(put)
    copies = []
    for call_position, puts in puts_of_call.items():
        verb = parse_verb(calls[call_position].operator)
        if verb and verb.name == "copy_to":
            start = min(put.start for put in puts)
            end = max(put.end for put in puts)
            copies.append(Span("copy", "copy", verb.device, "copy", start, end))
    return copies
