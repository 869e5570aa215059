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
from typing import TypeAlias

from backends.errors import BackendError
from backends.host import core_numbers
from backends.mxnet.program_hooks import MXNetProfiler, last_row
from backends.profiling.marks import Mark, marking_verbs, parse_verb, queue_device
from backends.profiling.readers import ChromeReader
from backends.profiling.slices import Trace
from backends.profiling.threads_of_trace import (
    assemble,
    host_spans,
    numbered_queues,
    outermost,
    outermost_calls,
    spans_of,
    windows,
)
from backends.profiling.timeline import HOST_DEVICE, KINDS, Span, SpanKind, Spans, Timeline, Window
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
"""What this project, and PyTorch, call the same."""
COPY_OPERATORS = re.compile(r"_slice_assign|_contrib_index_copy|_copyto|Copy[CG]PU2[CG]PU")
EXCHANGES = {"parallel_core", "KVStoreReduce", "ElementwiseSum"}
"""Our sums over devices, and a KVStore's: of type `local`, and of type `device`."""
WAIT_OPERATORS = {"WaitForVar", "parallel_core"}
"""What cpu(0)'s worker runs for calls that wait: MXNet's operator, and our barriers."""
UNLINKED = (
    "MXNet's profiler does not record which call an operator comes from. They are matched by name "
    "and order; on {} not "
    "all calls could be matched, because one call may run several operators"
)
SHORT_SUMS = (
    "MXNet sums short arrays by ordinary operators: these count as computation, and only copying "
    "the sums back counts "
    "as communication"
)


LinkKey: TypeAlias = tuple[str, str]
"""A device and the name of an operator."""

OPERATOR_OF_CALL = {"copy_to": "copy", "launch to_host": "copy", "launch total": "sum"}
"""The operator that a call of another name launches."""


# A second configuration in one process is an error.
_profiler = cache(MXNetProfiler)


def check(backend: Backend) -> None:
    """Raise BackendError if MXNet's profiler has no row for one of the devices, and would abort the
    process.
    """
    import mxnet as mx

    cores = len(core_numbers())
    last = last_row(cores, mx.context.num_gpus())
    beyond = [device for device in backend.devices if device.kind == "cpu" and device.index > last]
    if beyond:
        raise BackendError(
            f"mxnet's profiler would abort at {beyond[0]}: with {cores} "
            f"{'core' if cores == 1 else 'cores'} it has "
            f"rows up to cpu:{last}, so profile with --devices {last} or fewer"
        )


@contextmanager
def profile(backend: Backend, path: Path) -> Iterator[Mark]:
    """Run MXNet's profiler, which writes its trace to `path` at the end; gives a `Mark`."""
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
            path.write_text(_with_cpu_rows(path.read_text(encoding="utf-8")), encoding="utf-8")


def is_from(trace: Trace) -> bool:
    """Return whether MXNet's profiler wrote a trace."""
    return any(_device_in(name) for name in trace.processes.values())


def timeline_of(trace: Trace) -> Timeline:
    """Read what MXNet's profiler wrote.

    Each thread that runs a device's operators is a separate queue.
    """
    slices = trace.columns
    devices = _devices(trace.processes)
    on_devices = slices.on_threads({row for row in slices.rows if row[0] in devices})
    counted = slices.has_category(OPERATORS) & on_devices & ~slices.has_name(HOUSEKEEPING)
    # Some operators run other operators: a convolution may reorder its images first.
    work = outermost(slices.select(counted))
    on_first = work.on_threads({row for row in work.rows if devices.get(row[0]) == "cpu:0"})
    waiting = on_first & work.has_name(WAIT_OPERATORS)
    waits, operators = work.select(waiting), work.select(~waiting)
    wait_queues = numbered_queues(dict.fromkeys(waits.threads(), (HOST_DEVICE, "waits")))
    computing = operators.select(
        ~operators.has_name({name for name in operators.names if _kind(name) == "copy"})
    )
    # MXNet's copy workers of a GPU, or a CPU device's worker that does nothing else.
    copying = {*operators.threads()} - {*computing.threads()}
    queues = numbered_queues(
        {
            thread: (devices[thread[0]], "copy" if thread in copying else "compute")
            for thread in operators.threads()
        }
    )
    marks = list(slices.select(slices.has_category(MARKS)))
    cases, host = windows(marks), host_spans(outermost_calls(marks))
    spans = spans_of(operators, _kind, queues, _readable)
    unlinked: list[str] = []
    if cases:
        linked, unlinked = _link_launches(list(spans), host, cases)
        spans = Spans.of(linked)
    waited = spans_of(waits, lambda _: "host", wait_queues, lambda _: "wait")
    notes = [*trace.problems]
    if (
        any(call.name == "allreduce" for call in host)
        and KINDS.index("exchange") not in spans.kinds
    ):
        notes.append(SHORT_SUMS)
    if unlinked:
        notes.append(UNLINKED.format(", ".join(unlinked)))
    timeline = assemble(
        "mxnet", [Spans.of(host), waited, spans], cases, notes, set(devices.values())
    )
    if cases:
        return timeline
    steps = tuple(
        Window(mark.name, mark.start, mark.end) for mark in marks if mark.name.startswith(STEP)
    )
    return replace(timeline, annotations=steps)


READER = ChromeReader(is_from, timeline_of)


def _with_cpu_rows(text: str) -> str:
    # MXNet's CUDA build has 32 rows for GPUs behind those of the cores, whatever GPUs there are;
    # without any GPU, they are the rows of the CPU devices with their numbers.
    return re.sub(
        r'"(?:gpu/\d+|cpu pinned/|cpu shared/)"(\s*},\s*"pid": )(\d+)', r'"cpu/\2"\1\2', text
    )


def _device_in(label: str) -> str | None:
    match = re.fullmatch(r"([cg]pu)/(\d+)", label)
    return f"{match[1]}:{match[2]}" if match else None


def _devices(labels: Mapping[int | str, str]) -> dict[int | str, str]:
    devices = {row: device for row, label in labels.items() if (device := _device_in(label))}
    gpus = any(device.startswith("gpu") for device in devices.values())
    for row, label in labels.items():
        # Without GPUs nothing is page-locked, and a row with such a label is that of the CPU device
        # with its number.
        if label in ("cpu pinned/", "cpu shared/"):
            devices[row] = "cpu:0" if gpus else f"cpu:{row}"
    return devices


@cache
def _kind(operator: str) -> SpanKind:
    if operator in EXCHANGES:
        return "exchange"
    return "copy" if COPY_OPERATORS.fullmatch(operator) else "compute"


@cache
def _readable(operator: str) -> str:
    if COPY_OPERATORS.fullmatch(operator):
        return "copy"
    plain = re.sub(r"_(npi|npx|np)_", "_", operator).strip("_")
    forward = plain.removeprefix("backward_")
    return READABLE_NAMES.get(forward, forward) + ("" if forward == plain else " backward")


def _link_launches(
    spans: Sequence[Span], host: Sequence[Span], cases: Sequence[Window]
) -> tuple[list[Span], list[str]]:
    """Return the spans, with their launch if it is known, and the devices on which some calls have
    no match.

    `host` holds the calls of the verbs; spans outside of the cases stay as they are. A device
    begins its operators when their inputs are there, which need not be in the order of their
    launch. So operators are matched with calls of the same name only, and only if there are as many
    of the one as of the other. Among those of one name the first call is taken to have launched
    what began first; a mean wait does not depend on which did.
    """
    linked = {id(span): span for span in spans}
    unmatched: set[str] = set()
    for case in cases:
        launches: dict[LinkKey, list[int]] = defaultdict(list)
        for call in host:
            parsed = parse_verb(call.operator)
            if parsed and parsed.device and case.start <= call.start < case.end:
                operator = OPERATOR_OF_CALL.get(parsed.name, parsed.name.removeprefix("launch "))
                launches[parsed.device, operator].append(call.start)
        operators: dict[LinkKey, list[Span]] = defaultdict(list)
        for span in sorted(spans, key=lambda span: span.start):
            if case.start <= span.start < case.end:
                # Adding a number is another operator than adding an array.
                operators[span.device, span.name.removesuffix("_scalar")].append(span)
        for key, starts in launches.items():
            pairs = list(zip(starts, operators[key], strict=False))
            if len(starts) != len(operators[key]) or any(
                span.start < start for start, span in pairs
            ):
                unmatched.add(key[0])
            else:
                linked.update({id(span): span._replace(launched=start) for start, span in pairs})
    return list(linked.values()), sorted(unmatched)
