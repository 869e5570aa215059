"""JAX's own profiler. Read it beside `backends/mxnet/profiler.py`: the same functions, in the same order.

XLA records each kernel with its program and the number of the run, and a program's name says its device, because the
clients that serve devices are alike in a trace. A span is a run of a program, from its first kernel to its last. Of
copies XLA records only that a thread of a pool was at work: such work without a kernel counts as copying.
"""

import gzip
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from backends.arrays import tree_leaves
from backends.devices import Device
from backends.jax.names import parse_program, plain
from backends.profiling.chrome_trace.slices import Slices, Trace
from backends.profiling.marks import Mark, marking_verbs, parse_case, parse_verb
from backends.profiling.threads_of_trace import (
    TraceThread,
    assemble,
    count_unlinked,
    host_spans,
    numbered_queues,
    outermost_calls,
    python_queues,
    windows,
)
from backends.profiling.timeline import Span, SpanKind, Spans, Timeline
from backends.protocol import Array, Backend

__all__ = ["check", "is_from", "profile", "timeline_of"]

KERNEL, POOL = "hlo_module", "tf_XLAPjRtCpuClient"
BEGIN, END, TO_HOST = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion", "D2H Dispatch"
READABLE_NAMES = {"to_host": "copy", "total": "sum"}
"""What PyTorch calls the same."""
COPIES = (
    "XLA's profile names no copies: what a pool's threads do without a kernel counts as copying, on the device whose "
    "programs run there, be it the copy's source or its destination"
)


def check(backend: Backend) -> None:
    """Accept every backend of JAX."""


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
            with marking_verbs(backend, jax.profiler.TraceAnnotation, partial(_queue_device, jax.Array, backend)):
                yield jax.profiler.TraceAnnotation
        finally:
            jax.profiler.stop_trace()
            (written,) = Path(folder).rglob("*.trace.json.gz")
            path.write_bytes(gzip.decompress(written.read_bytes()))


def is_from(trace: Trace) -> bool:
    """Return whether JAX's profiler wrote a trace, of programs that this package launched."""
    return any(name == "/host:CPU" for name in trace.processes.values())


def timeline_of(trace: Trace, source: str = "jax") -> Timeline:
    """Read what JAX's profiler wrote. Each device has a queue of programs, and one of copies for each thread."""
    slices = trace.columns
    marks = list(
        slices.select(slices.has_name({name for name in slices.names if parse_verb(name) or parse_case(name)}))
    )
    cases = windows(marks)
    calls = outermost_calls(marks)
    host = host_spans(calls, python_queues(calls, {}))
    runs, threads = _runs(slices)
    copies = _copies(trace, slices, threads)
    notes = [*trace.problems, *([COPIES] if copies else [])]
    timeline = assemble(
        source, Spans.joined([Spans.of(host), Spans.of(_linked(runs, host)), Spans.of(copies)]), cases, notes
    )
    return count_unlinked(timeline, {span.device for span in runs})


def _queue_device(array: type, backend: Any, verb: str, *args: Array, **named: Any) -> Device | None:
    if verb == "copy_to":
        return named.get("device") or args[1]
    if verb == "launch":
        for leaf in tree_leaves((args, tuple(named.values()))):
            if isinstance(leaf, array):
                return backend.device_of(leaf)
    return None


def _runs(slices: Slices) -> tuple[list[Span], dict[TraceThread, str]]:
    """Return the runs of programs in the order of their launch, and the device of each thread that computed."""
    kernels: dict[int, list[tuple[str, str, int, int]]] = defaultdict(list)
    programs: dict[int, tuple[str, str]] = {}
    threads: dict[TraceThread, str] = {}
    for one, (program, run, operator) in zip(slices, slices.arguments(KERNEL, "run_id", "hlo_op"), strict=True):
        parsed = parse_program(program or "")
        if parsed and run is not None:
            programs[int(run)] = parsed
            _, device = parsed
            threads.setdefault((one.process, one.thread), device)
            kernels[int(run)].append((str(operator), device, one.start, one.end))
    spans = []
    for run, (name, device) in sorted(programs.items()):
        own = kernels[run]
        operators = ", ".join(dict.fromkeys(operator for operator, *_ in own))
        start, end = min(start for *_, start, _ in own), max(end for *_, end in own)
        kind: SpanKind = "copy" if name == "to_host" else "compute"
        spans.append(Span(READABLE_NAMES.get(name, name), kind, device, "compute", start, end, operator=operators))
    return spans, threads


def _linked(runs: Sequence[Span], host: Sequence[Span]) -> Iterator[Span]:
    """Link runs with calls: those of a device and name are launched and numbered in one order, if all are there."""
    calls: dict[tuple[str, str], list[int]] = defaultdict(list)
    for call in sorted(host, key=lambda call: call.start):
        parsed = parse_verb(call.operator)
        if parsed and parsed.name.startswith("launch "):
            name = plain(parsed.name.removeprefix("launch "))
            calls[parsed.device, READABLE_NAMES.get(name, name)].append(call.start)
    begun: Counter[tuple[str, str]] = Counter()
    numbers = Counter((run.device, run.name) for run in runs)
    for run in runs:
        key = run.device, run.name
        launched = calls[key][begun[key]] if numbers[key] == len(calls[key]) else None
        begun[key] += 1
        yield run if launched is None or launched > run.start else run._replace(launched=launched)


def _copies(trace: Trace, slices: Slices, devices: Mapping[TraceThread, str]) -> list[Span]:
    """Return what threads of the pools did without a kernel."""
    queues = numbered_queues(
        {thread: (device, "copy") for thread, device in devices.items() if POOL in trace.threads.get(thread, "")}
    )
    begins: dict[TraceThread, int] = {}
    spans = []
    for one in slices.select(slices.on_threads(queues)):
        thread = one.process, one.thread
        if one.name == BEGIN:
            begins[thread] = one.end
        elif one.name == END and thread in begins:
            spans.append(Span("copy", "copy", *queues[thread], begins.pop(thread), one.start))
        elif one.name == TO_HOST or b"hlo_op" in one.raw_args:
            begins.pop(thread, None)
    return spans
