"""Traces that JAX's profiler writes of other programs than ours: CPUs, GPUs' streams, TPUs.

XLA names each operation by its place in the compiled program (`hlo_op`), on any device. Of a GPU a
thread stands for a stream; of a TPU two of its lines are work, and the rest repeats them in other
words. On a CPU operations lie on the threads of pools, which serve all devices.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from backends.profiling.collectives import is_communication
from backends.profiling.kernel_names import short_names
from backends.profiling.slices import Slices, Trace, TraceThread, coded, recoded
from backends.profiling.threads_of_trace import (
    count_unlinked,
    numbered_queues,
    outermost,
    python_queues,
    spans_of,
)
from backends.profiling.timeline import KINDS, UNKNOWN, Queue, SpanKind, Spans, Timeline, Window

HOST = "/host:CPU"
DEVICE = re.compile(r"/device:([A-Z]+):(\d+)(.*)")
POOL = "tf_"
"""The first letters of the names of XLA's own threads."""
STREAM = re.compile(r"Stream #(\d+)")
TPU_LINES = ("XLA Ops", "Async XLA Ops")
EXCHANGE = re.compile(
    r"%?(?:all-reduce|all-gather|reduce-scatter|all-reduce-scatter|(?:ragged-)?all-to-all|"
    r"collective-permute|collective-broadcast|async-collective|send|recv)"
    r"(?:-start|-done)?(?:\.\d+)*"
)
COPY = re.compile(r"Memcpy.*|%?copy-(?:start|done)(?:\.\d+)*")
CONTAINER = re.compile(r"%?(?:while|call|conditional)(?:\.\d+)*")
"""Operations that consist of other ones, which are recorded, too, perhaps on other threads."""
CALL = re.compile(r"PjitFunction\(.*|PmapFunction\(.*|DevicePut\w*|.*Executable::Execute.*")
"""Names of calls that launch, on a thread of the host."""
STEP = re.compile(r"ProfilerStep#\d+")
MOST_EVENTS = 1_000_000
CUT_OFF = (
    f"JAX writes at most {MOST_EVENTS:,} events, and the file holds as many: what is missing is "
    "not known."
)
NO_COPIES = "XLA's profile of CPUs names no copies between devices: how long they took is not known"


class _Work(NamedTuple):
    """Operations on devices, and the queue of each."""

    slices: Slices
    queues: tuple[Queue, ...]
    queue_of: np.ndarray


def timeline_of_program(trace: Trace) -> Timeline:
    """Return the timeline of a program that JAX's profiler recorded."""
    slices = trace.columns
    on_accelerators = _work_on_accelerators(slices, trace)
    on_cpus = _work_on_cpus(slices, trace)
    host = _host_slices(slices, trace)
    launches = _Launches(host)
    parts = [_spans(work, launches) for work in (on_accelerators, on_cpus)]
    devices = {device for work in (on_accelerators, on_cpus) for device, _ in work.queues}
    calls = _calls(host, trace)
    queues = python_queues(calls, trace.threads)
    parts.append(spans_of(calls, lambda _: "host", queues, str))
    notes = [*trace.problems]
    if len(slices) >= MOST_EVENTS:
        notes.append(CUT_OFF)
    if len(on_cpus.slices):
        notes.append(NO_COPIES)
    annotations = tuple(_steps(host))
    timeline = Timeline("jax", Spans.joined(parts), (), tuple(notes), annotations=annotations)
    return count_unlinked(timeline, devices)


def _work_on_accelerators(slices: Slices, trace: Trace) -> _Work:
    """Return what ran on the streams of GPUs and on the lines of TPUs."""
    queues: dict[TraceThread, Queue] = {}
    streams: set[TraceThread] = set()
    for row in slices.rows:
        device = DEVICE.match(trace.processes.get(row[0], ""))
        if device is None:
            continue
        name = f"{device[1].lower()}:{device[2]}{device[3]}"
        line = trace.threads.get(row, "")
        stream = STREAM.match(line)
        if stream is not None:
            queues[row] = (name, f"stream {stream[1]}")
            streams.add(row)
        elif line in TPU_LINES and device[1] != "GPU":
            queues[row] = (name, line)
    is_operation = slices.on_threads(streams)
    # A TPU's line has operations within others: the innermost ones are kept.
    on_lines = slices.on_threads(queues.keys() - streams) & ~_is_container(slices)
    positions = np.flatnonzero(on_lines)
    is_operation[positions] = _holds_no_other(slices.select(positions))
    work = slices.select(is_operation)
    names, queue_of = recoded(work.rows, work.row_of, queues.__getitem__)
    return _on_own_lanes(_Work(work, names, queue_of))


def _work_on_cpus(slices: Slices, trace: Trace) -> _Work:
    """Return the operations on the devices that a host's cores stand for."""
    on_host = slices.select(slices.on_threads(_host_rows(slices, trace)))
    is_operation = _has_argument(on_host, "hlo_op") & ~_is_container(on_host)
    operations = on_host.select(is_operation)
    operations = operations.select(_holds_no_other(operations))
    rows = [operations.rows[row] for row in operations.row_of.tolist()]
    ordinals = [ordinal for (ordinal,) in operations.arguments("device_ordinal")]
    pairs, pair_of = coded(zip(ordinals, rows, strict=True))
    # Before 2025 XLA did not say on which device.
    devices = ["cpu" if ordinal is None else f"cpu:{ordinal}" for ordinal, _ in pairs]
    numbered = numbered_queues(
        {("pair", number): (device, "compute") for number, device in enumerate(devices)}
    )
    return _on_own_lanes(_Work(operations, tuple(numbered.values()), pair_of))


def _is_container(slices: Slices) -> np.ndarray:
    """Return the mask of the operations that consist of other ones."""
    return slices.has_name({name for name in slices.names if CONTAINER.fullmatch(name)})


def _has_argument(slices: Slices, *names: str) -> np.ndarray:
    """Return the mask of the slices with an argument of one of these names."""
    keys = [f'"{name}"'.encode() for name in names]
    mask = np.zeros(len(slices), bool)
    for number, raw in enumerate(slices.raw_args.tolist()):
        for key in keys:
            if key in raw:
                mask[number] = True
    return mask


def _host_rows(slices: Slices, trace: Trace) -> set[TraceThread]:
    return {row for row in slices.rows if trace.processes.get(row[0], "").startswith(HOST)}


def _host_slices(slices: Slices, trace: Trace) -> Slices:
    """Return what the host's threads did, without calls of Python's functions."""
    on_host = slices.on_threads(_host_rows(slices, trace))
    not_python = {name for name in slices.names if not name.startswith("$")}
    return slices.select(on_host & slices.has_name(not_python))


def _calls(host: Slices, trace: Trace) -> Slices:
    """Return the program's calls that launch; the threads of pools launch on its behalf."""
    pools = {row for row, name in trace.threads.items() if name.startswith(POOL)}
    launching = host.has_name({name for name in host.names if CALL.fullmatch(name)})
    return outermost(host.select(launching & ~host.on_threads(pools)))


def _holds_no_other(slices: Slices) -> np.ndarray:
    """Return the mask of the slices within which no other one of the same thread lies."""
    order = np.lexsort((-slices.ends, slices.starts, slices.row_of))
    rows, starts, ends = slices.row_of[order], slices.starts[order], slices.ends[order]
    is_on_same_thread = rows[1:] == rows[:-1]
    ends_within = ends[1:] <= ends[:-1]
    takes_time = starts[1:] < ends[1:]
    holds_next = is_on_same_thread & ends_within & takes_time
    mask = np.ones(len(slices), bool)
    mask[order[:-1]] = ~holds_next
    return mask


def _on_own_lanes(work: _Work) -> _Work:
    """Give operations that overlap on one queue queues of their own, since a queue runs one."""
    queues = list(work.queues)
    queue_of = work.queue_of.copy()
    for number, (device, queue) in enumerate(work.queues):
        positions = np.flatnonzero(queue_of == number)
        starts, ends = work.slices.starts[positions], work.slices.ends[positions]
        if not np.any(starts[1:] < np.maximum.accumulate(ends)[:-1]):
            continue
        # Each lane's queue, and the time from which on it runs nothing.
        lanes = [number]
        free_from = [0]
        columns = (positions.tolist(), starts.tolist(), ends.tolist())
        for position, start, end in zip(*columns, strict=True):
            lane = next((lane for lane, time in enumerate(free_from) if time <= start), None)
            if lane is None:
                lane = len(lanes)
                lanes.append(len(queues))
                free_from.append(0)
                queues.append((device, f"{queue} ({lane + 1})"))
            free_from[lane] = end
            queue_of[position] = lanes[lane]
    return _Work(work.slices, tuple(queues), queue_of)


class _Launches:
    """Times when the host launched operations, by the number of the call or of the run."""

    def __init__(self, host: Slices) -> None:
        self._calls: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        calls = host.select(_has_argument(host, "run_id", "correlation_id"))
        arguments = calls.arguments("correlation_id", "run_id", "hlo_op")
        for (call, run, operator), start in zip(arguments, calls.starts.tolist(), strict=True):
            if operator is not None:
                continue
            if call is not None:
                self._calls.setdefault(str(call), start)
            if run is not None:
                self._runs.setdefault(str(run), start)

    def times(self, work: Slices) -> np.ndarray:
        """Return when each operation was launched, or UNKNOWN."""
        arguments = work.arguments("correlation_id", "run_id")
        launched = [
            self._calls.get(str(call), self._runs.get(str(run), UNKNOWN)) for call, run in arguments
        ]
        times = np.array(launched, np.int64)
        # A run's number may come again, and nothing runs before its launch.
        return np.where(times <= work.starts, times, UNKNOWN)


def _spans(work: _Work, launches: _Launches) -> Spans:
    """Return operations as a timeline has them: named, of a kind, on a queue."""
    slices = work.slices
    operations = [str(operator or "") for (operator,) in slices.arguments("hlo_op")]
    kernels = [slices.names[number] for number in slices.name_of.tolist()]
    # An operation has one kind, but a kernel of one name may serve several operations.
    pairs, pair_of = coded(zip(kernels, operations, strict=True))
    kinds = np.array([KINDS.index(_kind(*pair)) for pair in pairs], np.int8)[pair_of]
    operators, operator_of = recoded(slices.names, slices.name_of, str)
    shown = short_names(operators)
    names, name_of = recoded(operators, operator_of, lambda name: _readable(shown[name]))
    return Spans(
        names,
        operators,
        work.queues,
        name_of,
        operator_of,
        work.queue_of,
        kinds,
        slices.starts,
        slices.ends,
        launches.times(slices),
    )


def _kind(name: str, operation: str) -> SpanKind:
    if is_communication(name) or EXCHANGE.fullmatch(operation) or EXCHANGE.fullmatch(name):
        return "exchange"
    return "copy" if COPY.fullmatch(name) else "compute"


def _readable(name: str) -> str:
    """Return an operation's name without the number that tells it from others of its kind."""
    return re.sub(r"(?:\.\d+)+$", "", name.removeprefix("%"))


def _steps(host: Slices) -> Iterator[Window]:
    """Yield the steps that `profile` marks, and those of the program's StepTraceAnnotation."""
    recorded = host.select(host.has_name({name for name in host.names if STEP.fullmatch(name)}))
    for mark in recorded:
        yield Window(mark.name, mark.start, mark.end)
    marked = host.select(_has_argument(host, "step_num"))
    for mark, (number,) in zip(marked, marked.arguments("step_num"), strict=True):
        yield Window(f"{mark.name}#{number}", mark.start, mark.end)
