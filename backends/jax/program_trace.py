"""Traces that JAX's profiler writes of other programs than ours: CPUs, GPUs' streams, TPUs.

XLA names each operation by its place in the compiled program (`hlo_op`), on any device. Of a GPU a
thread stands for a stream; of a TPU two of its lines are work, and the rest repeats them in other
words. On a CPU operations lie on the threads of pools, which serve all devices.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

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
"""How the names of XLA's own threads begin."""
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
"""What launches, on a thread of the host."""
ARGUMENTS = ("hlo_op", "device_ordinal", "correlation_id", "run_id")
"""What is asked of operations."""
STEP = re.compile(r"ProfilerStep#\d+")
MOST_EVENTS = 1_000_000
CUT_OFF = (
    f"JAX writes at most {MOST_EVENTS:,} events, and the file holds as many: what is missing is "
    "not known."
)
NO_COPIES = "XLA's profile of CPUs names no copies between devices: how long they took is not known"


Coded: TypeAlias = "tuple[tuple[Any, ...], np.ndarray]"
"""Different values, and the place of each operation's among them."""


class _Work(NamedTuple):
    """Operations on devices, the queue of each, and their arguments by name."""

    slices: Slices
    queues: tuple[Queue, ...]
    queue_of: np.ndarray
    arguments: Mapping[str, Coded]


def timeline_of_program(trace: Trace) -> Timeline:
    """Return the timeline of a program that JAX's profiler recorded."""
    slices = trace.columns
    on_accelerators = _work_on_accelerators(slices, trace)
    on_host = slices.on_threads(_host_rows(slices, trace))
    is_operation = slices.raw_args.holding(b'"hlo_op"')
    on_cpus = _work_on_cpus(slices, on_host & is_operation)
    host = slices.select(on_host & ~is_operation & ~_of_python(slices))
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
    streams = set()
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
    on_streams = slices.on_threads(streams)
    on_lines = slices.on_threads(queues.keys() - streams)
    on_lines &= ~slices.has_name(set(filter(CONTAINER.fullmatch, slices.names)))
    kept = on_streams.copy()
    places = np.flatnonzero(on_lines)
    kept[places] = _holds_no_other(slices.select(places))
    work = slices.select(kept)
    names, queue_of = recoded(work.rows, work.row_of, queues.__getitem__)
    return _on_own_lanes(_Work(work, names, queue_of, _arguments(work)))


def _work_on_cpus(slices: Slices, is_operation: np.ndarray) -> _Work:
    """Return the operations on the devices that a host's cores stand for."""
    containers = slices.has_name(set(filter(CONTAINER.fullmatch, slices.names)))
    places = np.flatnonzero(is_operation & ~containers)
    operations = slices.select(places[_holds_no_other(slices.select(places))])
    arguments = _arguments(operations)
    ordinals, ordinal_of = arguments["device_ordinal"]
    # A queue for each device and thread, in the order of their first operations.
    pair_of_all = operations.row_of.astype(np.int64) * len(ordinals) + ordinal_of
    pairs, pair_of = coded(pair_of_all.tolist())
    # Before 2025 XLA did not say on which device.
    devices = [_cpu(ordinals[pair % len(ordinals)]) for pair in pairs]
    numbered = numbered_queues(
        {("pair", place): (device, "compute") for place, device in enumerate(devices)}
    )
    return _on_own_lanes(_Work(operations, tuple(numbered.values()), pair_of, arguments))


def _arguments(operations: Slices) -> Mapping[str, Coded]:
    # Decoding them is most of the work, so it is done once.
    return dict(zip(ARGUMENTS, operations.coded_arguments(*ARGUMENTS), strict=True))


def _cpu(ordinal: object) -> str:
    return "cpu" if ordinal is None else f"cpu:{ordinal}"


def _host_rows(slices: Slices, trace: Trace) -> set[TraceThread]:
    return {row for row in slices.rows if trace.processes.get(row[0], "").startswith(HOST)}


def _of_python(slices: Slices) -> np.ndarray:
    """Return the mask of the calls of Python's functions."""
    return slices.has_name({name for name in slices.names if name.startswith("$")})


def _calls(host: Slices, trace: Trace) -> Slices:
    """Return the program's calls that launch; the threads of pools launch on its behalf."""
    pools = {row for row, name in trace.threads.items() if name.startswith(POOL)}
    launching = host.has_name(set(filter(CALL.fullmatch, host.names)))
    return outermost(host.select(launching & ~host.on_threads(pools)))


def _holds_no_other(slices: Slices) -> np.ndarray:
    """Return the mask of the slices within which no other one of the same thread lies."""
    order = np.lexsort((-slices.ends, slices.starts, slices.row_of))
    rows, starts, ends = (column[order] for column in (slices.row_of, slices.starts, slices.ends))
    holds_next = (rows[1:] == rows[:-1]) & (ends[1:] <= ends[:-1]) & (starts[1:] < ends[1:])
    mask = np.ones(len(slices), bool)
    mask[order[:-1]] = ~holds_next
    return mask


def _on_own_lanes(work: _Work) -> _Work:
    """Give operations that overlap on one queue queues of their own, since a queue runs one."""
    queues = list(work.queues)
    queue_of = work.queue_of.copy()
    for number, (device, queue) in enumerate(work.queues):
        places = np.flatnonzero(queue_of == number)
        starts, ends = work.slices.starts[places], work.slices.ends[places]
        if not np.any(starts[1:] < np.maximum.accumulate(ends)[:-1]):
            continue
        lanes = [number]
        free_from = [0]
        for place, start, end in zip(places.tolist(), starts.tolist(), ends.tolist(), strict=True):
            lane = next((lane for lane, time in enumerate(free_from) if time <= start), None)
            if lane is None:
                lane = len(lanes)
                lanes.append(len(queues))
                free_from.append(0)
                queues.append((device, f"{queue} ({lane + 1})"))
            free_from[lane] = end
            queue_of[place] = lanes[lane]
    return work._replace(queues=tuple(queues), queue_of=queue_of)


class _Launches:
    """Times when the host launched operations, by the number of the call or of the run."""

    def __init__(self, host: Slices) -> None:
        self._calls: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        texts = host.raw_args
        calls = host.select(texts.holding(b'"run_id"') | texts.holding(b'"correlation_id"'))
        arguments = calls.arguments("correlation_id", "run_id")
        for (call, run), start in zip(arguments, calls.starts.tolist(), strict=True):
            if call is not None:
                self._calls.setdefault(str(call), start)
            if run is not None:
                self._runs.setdefault(str(run), start)

    def times(self, work: _Work) -> np.ndarray:
        """Return when each operation was launched, or UNKNOWN."""
        calls, call_of = work.arguments["correlation_id"]
        runs, run_of = work.arguments["run_id"]
        by_call = np.array([self._calls.get(str(call), UNKNOWN) for call in calls], np.int64)
        by_run = np.array([self._runs.get(str(run), UNKNOWN) for run in runs], np.int64)
        of_call, of_run = _each(by_call, call_of), _each(by_run, run_of)
        times = np.where(of_call == UNKNOWN, of_run, of_call)
        # A run's number may come again, and nothing runs before its launch.
        return np.where(times <= work.slices.starts, times, UNKNOWN)


def _each(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the values at some places; without any, there are no values either."""
    return values[places] if len(places) else np.zeros(0, np.int64)


def _spans(work: _Work, launches: _Launches) -> Spans:
    slices = work.slices
    operations, operation_of = work.arguments["hlo_op"]
    # An operation has one kind, but a kernel of one name may serve several operations.
    pair_of_all = slices.name_of.astype(np.int64) * max(len(operations), 1) + operation_of
    pairs, pair_of = np.unique(pair_of_all, return_inverse=True)
    kind_of_pairs = []
    for pair in pairs.tolist():
        name, operation = divmod(pair, len(operations))
        kind = _kind(slices.names[name], str(operations[operation] or ""))
        kind_of_pairs.append(KINDS.index(kind))
    kinds = np.array(kind_of_pairs, np.int8)[pair_of]
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
        launches.times(work),
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
    marked = host.select(host.raw_args.holding(b'"step_num"'))
    for mark, (number,) in zip(marked, marked.arguments("step_num"), strict=True):
        yield Window(f"{mark.name}#{number}", mark.start, mark.end)
