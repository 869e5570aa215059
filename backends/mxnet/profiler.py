"""MXNet's own profiler.

Read it beside `backends/torch/profiler.py`: the same functions, in the same order. MXNet's engine
records each operator that a worker runs, with the device's number and the thread, but not which
call it comes from. Of Python's calls the trace holds only the marks that the verbs leave.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from backends.errors import BackendError
from backends.host import core_numbers
from backends.mxnet.program_hooks import MXNetProfiler, last_row
from backends.profiling.doubts import Doubt
from backends.profiling.marks import Mark, marking_verbs, parse_verb, queue_device
from backends.profiling.readers import ChromeReader
from backends.profiling.slices import Slices, Trace, TraceThread
from backends.profiling.threads_of_trace import (
    Lanes,
    assemble,
    host_spans,
    numbered_queues,
    outermost,
    outermost_calls,
    spans_of,
    thread_of,
    windows,
)
from backends.profiling.timeline import (
    HOST_DEVICE,
    KINDS,
    Queue,
    Span,
    SpanKind,
    Spans,
    Timeline,
    Window,
)
from backends.protocol import Backend
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE

OPERATORS, MARKS, STEP = "operator", "event", "ProfilerStep#"
HOUSEKEEPING = {"DeleteVariable", "ResourceParallelRandomSetSeed"}
"""The engine's own work of some microseconds."""
READABLE_NAMES = {
    "Convolution": "conv2d",
    "ElementwiseSum": "allreduce",
    "Flatten": "flatten",
    "ImperativeBulk": "bulk of operators",
    "KVStoreReduce": "allreduce",
    "Pooling": "avg_pool2d",
    "SetValueOp": "fill",
    "broadcast_add": "add",
    "dot": "matmul",
    "multi_adamw_update": "sgd_while_finite",
    "multi_sgd_update": "sgd",
    "mul_scalar": "multiply_scalar",
    "parallel_core": "allreduce",
}
"""The names by which this project and PyTorch call MXNet's operators."""
COPY_OPERATORS = re.compile(r"_slice_assign|_contrib_index_copy|_copyto|Copy[CG]PU2[CG]PU")
EXCHANGES = {"parallel_core", "KVStoreReduce", "ElementwiseSum"}
"""Our sums over devices, and a KVStore's: of type `local`, and of type `device`."""
WITH_SERVERS = re.compile(r"KVStoreDist\w*")
"""What a KVStore pushes to servers and pulls from them, several at the same time."""
WAIT_OPERATORS = {"WaitForVar", "parallel_core"}
"""What cpu(0)'s worker runs for calls that wait: MXNet's operator, and our barriers."""
UNLINKED = (
    "MXNet's profiler does not record which call an operator comes from. They are matched by name "
    "and order; on {} not all calls could be matched, because one call may run several operators"
)
SHORT_SUMS = Doubt(
    "short-sums",
    "MXNet sums short arrays by ordinary operators: these count as computation, and only copying "
    "the sums back counts as communication",
)


LinkKey = tuple[str, str]
"""A device and the name of an operator."""

OPERATOR_OF_CALL = {"copy_to": "copy", "launch to_host": "copy", "launch total": "sum"}
"""The operator that a call of another name launches."""


# A second configuration in one process is an error.
_profiler = cache(MXNetProfiler)


def check(backend: Backend) -> None:
    """Raise BackendError if MXNet's profiler has no row for one of a backend's devices.

    The profiler would abort the process.
    """
    import mxnet as mx

    cores = len(core_numbers())
    last = last_row(cores, mx.context.num_gpus())
    for device in backend.devices:
        if device.kind == "cpu" and device.index > last:
            noun = "core" if cores == 1 else "cores"
            raise BackendError(
                f"mxnet's profiler would abort at {device}: with {cores} {noun} it has rows up to "
                f"cpu:{last}, so profile with --devices {last} or fewer"
            )


@contextmanager
def profile(backend: Backend, path: Path) -> Iterator[Mark]:
    """Run MXNet's profiler within a `with` block, which writes its trace to `path` at the end.

    The block gets a `Mark`.
    """
    import mxnet as mx

    profiler = _profiler(mx)
    by_source = COPY_ON_COMPUTE_QUEUE.name in backend.variants
    device_of = partial(queue_device, backend, mx.np.ndarray, copies_by_source=by_source)
    profiler.start()
    try:
        with marking_verbs(backend, profiler.mark, device_of):
            yield profiler.mark
    finally:
        profiler.stop(path)
        if not mx.context.num_gpus():
            trace = path.read_text(encoding="utf-8")
            path.write_text(_with_cpu_rows(trace), encoding="utf-8")


def is_from(trace: Trace) -> bool:
    """Return whether MXNet's profiler wrote a trace."""
    return any(_device_in(name) for name in trace.processes.values())


def timeline_of(trace: Trace) -> Timeline:
    """Return the timeline of a trace that MXNet's profiler wrote.

    Each thread that runs a device's operators is a separate queue.
    """
    slices = trace.columns
    devices = _devices(trace.processes)
    on_devices = slices.on_threads({row for row in slices.rows if row[0] in devices})
    counted = slices.has_category(OPERATORS) & on_devices & ~slices.has_name(HOUSEKEEPING)
    # Some operators run other operators: a convolution may reorder its images first.
    is_with_servers = slices.named(WITH_SERVERS.fullmatch)
    outer_operators = outermost(slices.select(counted & ~is_with_servers))
    with_servers = _with_servers(slices.select(counted & is_with_servers), devices)
    rows_of_first_cpu = {row for row in outer_operators.rows if devices.get(row[0]) == "cpu:0"}
    on_first_cpu = outer_operators.on_threads(rows_of_first_cpu)
    is_wait = on_first_cpu & outer_operators.has_name(WAIT_OPERATORS)
    waits, operators = outer_operators.select(is_wait), outer_operators.select(~is_wait)
    wait_queues = numbered_queues(dict.fromkeys(waits.threads(), (HOST_DEVICE, "waits")))
    queues = _queues_of(operators, devices)
    marks = list(slices.select(slices.has_category(MARKS)))
    cases, host = windows(marks), host_spans(outermost_calls(marks))
    operator_spans = spans_of(operators, _kind, queues, _readable)
    wait_spans = spans_of(waits, lambda _: "host", wait_queues, lambda _: "wait")
    notes = list(trace.problems)
    devices_with_unlinked: list[str] = []
    if cases:
        linked, devices_with_unlinked = _link_launches(list(operator_spans), host, cases)
        operator_spans = Spans.of(linked)
    has_sums = any(call.name == "allreduce" for call in host)
    has_exchanges = KINDS.index("exchange") in operator_spans.kinds
    if has_sums and not has_exchanges:
        notes.append(SHORT_SUMS)
    if devices_with_unlinked:
        notes.append(calls_unmatched(devices_with_unlinked))
    spans_of_sources = [Spans.of(host), wait_spans, operator_spans, Spans.of(with_servers)]
    timeline = assemble("mxnet", spans_of_sources, cases, notes, set(devices.values()))
    if cases:
        return timeline
    steps = tuple(
        Window(mark.name, mark.start, mark.end) for mark in marks if mark.name.startswith(STEP)
    )
    return replace(timeline, annotations=steps)


def calls_unmatched(devices: Sequence[str]) -> Doubt:
    """Return the doubt about devices on which calls lack operators of their names."""
    return Doubt("calls-unmatched", UNLINKED.format(", ".join(devices)))


def _with_servers(exchanges: Slices, devices: Mapping[int | str, str]) -> Iterator[Span]:
    """Yield the spans of exchanges with servers, which are in flight together."""
    lanes = Lanes()
    for exchange in exchanges:
        lane = lanes.take(thread_of(exchange), exchange.start, exchange.end)
        queue = "servers" if lane == 0 else f"servers {lane + 1}"
        device = devices[exchange.process]
        times = exchange.start, exchange.end
        yield Span(exchange.name, "exchange", device, queue, *times, operator=exchange.name)


def _queues_of(operators: Slices, devices: Mapping[int | str, str]) -> dict[TraceThread, Queue]:
    """Return the queue of each thread that runs operators: a device's for computing or copying."""
    other_operators = operators.select(operators.named(lambda name: _kind(name) != "copy"))
    threads_that_compute = set(other_operators.threads())
    purposes: dict[TraceThread, Queue] = {}
    for thread in operators.threads():
        # A thread that only copies is a GPU's copy worker, or a CPU device's worker.
        purpose = "compute" if thread in threads_that_compute else "copy"
        row, _ = thread
        purposes[thread] = (devices[row], purpose)
    return numbered_queues(purposes)


READER = ChromeReader(is_from, timeline_of)


def _with_cpu_rows(text: str) -> str:
    """Return a trace in which all rows have the labels of CPU devices: there are no GPUs."""
    # MXNet's CUDA build has 32 rows for GPUs behind those of the cores, whatever GPUs there are;
    # without any GPU, they are the rows of the CPU devices with their numbers.
    return re.sub(
        r'"(?:gpu/\d+|cpu pinned/|cpu shared/)"(\s*},\s*"pid": )(\d+)', r'"cpu/\2"\1\2', text
    )


def _device_in(label: str) -> str | None:
    """Return the device that a row's label names; None if it names none."""
    match = re.fullmatch(r"([cg]pu)/(\d+)", label)
    if match is None:
        return None
    kind, index = match.groups()
    return f"{kind}:{index}"


def _devices(labels: Mapping[int | str, str]) -> dict[int | str, str]:
    """Return the device of each row that is one, by the row's number."""
    devices: dict[int | str, str] = {}
    for row, label in labels.items():
        device = _device_in(label)
        if device is not None:
            devices[row] = device
    has_gpus = any(device.startswith("gpu") for device in devices.values())
    for row, label in labels.items():
        # Without GPUs nothing is page-locked, and a row with such a label is that of the CPU device
        # with its number.
        if label in ("cpu pinned/", "cpu shared/"):
            devices[row] = "cpu:0" if has_gpus else f"cpu:{row}"
    return devices


@cache
def _kind(operator: str) -> SpanKind:
    """Return the kind of span that an operator is."""
    if operator in EXCHANGES:
        return "exchange"
    if COPY_OPERATORS.fullmatch(operator):
        return "copy"
    return "compute"


@cache
def _readable(operator: str) -> str:
    """Return the name of an operator that this project, and PyTorch, give to such an operation."""
    if COPY_OPERATORS.fullmatch(operator):
        return "copy"
    name = re.sub(r"_(npi|npx|np)_", "_", operator).strip("_")
    forward_name = name.removeprefix("backward_")
    readable_name = READABLE_NAMES.get(forward_name, forward_name)
    is_backward = name != forward_name
    return f"{readable_name} backward" if is_backward else readable_name


def _link_launches(
    spans: Sequence[Span], host: Sequence[Span], cases: Sequence[Window]
) -> tuple[list[Span], list[str]]:
    """Return the spans, linked to their launches if known, and the devices with unmatched calls.

    `host` holds the calls of the verbs; spans outside of the cases stay as they are. A device
    begins its operators when their inputs are there, which need not be in the order of their
    launch. So operators are matched with calls of the same name only, and only if there are as many
    operators as calls. Among those of one name the first call is taken to have launched the
    operator that began first; a mean wait does not depend on which operator did.
    """
    linked = {id(span): span for span in spans}
    devices_with_unmatched: set[str] = set()
    spans_by_start = sorted(spans, key=lambda span: span.start)
    for case in cases:
        launches = _launches_in(case, host)
        spans_of_operator: dict[LinkKey, list[Span]] = defaultdict(list)
        for span in spans_by_start:
            if case.start <= span.start < case.end:
                # Adding a number is another operator than adding an array.
                operator = span.name.removesuffix("_scalar")
                spans_of_operator[span.device, operator].append(span)
        for key, starts in launches.items():
            device, _ = key
            candidates = spans_of_operator[key]
            pairs = list(zip(starts, candidates, strict=False))
            begins_too_early = any(span.start < start for start, span in pairs)
            if len(starts) != len(candidates) or begins_too_early:
                devices_with_unmatched.add(device)
                continue
            for start, span in pairs:
                linked[id(span)] = span._replace(launched=start)
    return list(linked.values()), sorted(devices_with_unmatched)


def _launches_in(case: Window, host: Sequence[Span]) -> dict[LinkKey, list[int]]:
    """Return the times at which calls of a case launched operators, by device and operator."""
    launches: dict[LinkKey, list[int]] = defaultdict(list)
    for call in host:
        if not case.start <= call.start < case.end:
            continue
        verb = parse_verb(call.operator)
        if verb is None or not verb.device:
            continue
        operator = OPERATOR_OF_CALL.get(verb.name, verb.name.removeprefix("launch "))
        launches[verb.device, operator].append(call.start)
    return launches
