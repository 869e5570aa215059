"""Traces that JAX's profiler writes of other programs than ours: CPUs, GPUs' streams, TPUs.

XLA names each operation by its place in the compiled program (`hlo_op`), on any device. Of a GPU a
thread stands for a stream; of a TPU two of its lines are work, and the rest repeats them in other
words. On a CPU operations lie on the threads of pools, which serve all devices.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from backends.profiling.collectives import is_communication
from backends.profiling.doubts import Doubt
from backends.profiling.kernel_names import short_names
from backends.profiling.slices import Slices, Trace, TraceThread, coded, recoded
from backends.profiling.threads_of_trace import (
    Lanes,
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
TPU_LINES = ("XLA Ops", "Async XLA Ops", "Sparse Core Ops")
SPARSE_CORE = re.compile(r" (SparseCore \d+)")
"""How the process of a TPU is called that stands for another core of the same chip."""
EXCHANGE = re.compile(
    r"%?(?:all-reduce|all-gather|reduce-scatter|all-reduce-scatter|(?:ragged-)?all-to-all|"
    r"collective-permute|collective-broadcast|async-collective|send|recv)"
    r"(?:-start|-done)?(?:\.\d+)*"
)
COPY = re.compile(r"Memcpy.*|%?copy-(?:start|done)(?:\.\d+)*")
CONTAINER = re.compile(r"%?(?:while|call|conditional)(?:\.\d+)*")
"""Operations that consist of other ones, which are recorded, too, perhaps on other threads."""
CALL = re.compile(r"PjitFunction\(.*|PmapFunction\(.*|DevicePut\w*|.*Executable::Execute.*")
"""The names of calls that launch operations, on a thread of the host."""
ARGUMENTS = ("hlo_op", "device_ordinal", "correlation_id", "run_id", "step_num")
"""The arguments that are read."""
STEP = re.compile(r"ProfilerStep#\d+")
MOST_EVENTS = 1_000_000
EVENT_LIMIT = Doubt(
    "event-limit",
    f"JAX writes at most {MOST_EVENTS:,} events, and the file holds as many: what is missing is "
    "not known.",
)
NO_COPIES = Doubt(
    "no-copies-named",
    "XLA's profile of CPUs names no copies between devices: how long they took is not known",
)


class _Argument(NamedTuple):
    """The values that some slices have for one argument."""

    values: tuple[Any, ...]
    """Distinct ones; that of a slice without the argument is None."""
    value_of: np.ndarray
    """Positions in `values`, one for each slice."""

    @property
    def is_given(self) -> np.ndarray:
        """Which slices have the argument: a mask."""
        return np.array([value is not None for value in self.values], bool)[self.value_of]


class _Decoded(NamedTuple):
    """Slices, and their arguments by name."""

    slices: Slices
    arguments: Mapping[str, _Argument]

    @classmethod
    def of(cls, slices: Slices) -> "_Decoded":
        """Decode the arguments of slices."""
        # Decoding them is most of the work, so it is done once for all that is asked.
        arguments = slices.coded_arguments(*ARGUMENTS)
        return cls(slices, dict(zip(ARGUMENTS, starmap(_Argument, arguments), strict=True)))

    def select(self, where: np.ndarray) -> "_Decoded":
        """Return those that a mask selects, or those at some positions."""
        arguments = {
            name: argument._replace(value_of=argument.value_of[where])
            for name, argument in self.arguments.items()
        }
        return _Decoded(self.slices.select(where), arguments)


class _Work(NamedTuple):
    """Operations on devices, the queue of each, and their arguments by name."""

    slices: Slices
    queues: tuple[Queue, ...]
    queue_of: np.ndarray
    arguments: Mapping[str, _Argument]


def timeline_of_program(trace: Trace) -> Timeline:
    """Return the timeline of a program that JAX's profiler recorded."""
    slices = trace.columns
    decoded = _Decoded.of(slices)
    on_accelerators = _work_on_accelerators(decoded, trace)
    host_rows = {row for row in slices.rows if trace.processes.get(row[0], "").startswith(HOST)}
    on_host = slices.on_threads(host_rows)
    is_operation = decoded.arguments["hlo_op"].is_given
    on_cpus = _work_on_cpus(decoded, on_host & is_operation)
    is_of_python = slices.named(lambda name: name.startswith("$"))
    host = decoded.select(on_host & ~is_operation & ~is_of_python)
    launches = _Launches(host)
    pools = {row for row, name in trace.threads.items() if name.startswith(POOL)}
    is_call = host.slices.named(CALL.fullmatch) & ~host.slices.on_threads(pools)
    calls = outermost(host.slices.select(is_call))
    queues_of_host = python_queues(calls, trace.threads)
    spans = [
        _spans(on_accelerators, launches),
        _spans(on_cpus, launches),
        spans_of(calls, lambda _: "host", queues_of_host, str),
    ]
    devices = {device for device, _ in (*on_accelerators.queues, *on_cpus.queues)}
    notes = list(trace.problems)
    if len(slices) >= MOST_EVENTS:
        notes.append(EVENT_LIMIT)
    if len(on_cpus.slices):
        notes.append(NO_COPIES)
    annotations = tuple(_steps(host))
    timeline = Timeline("jax", Spans.joined(spans), (), tuple(notes), annotations=annotations)
    return count_unlinked(timeline, devices)


def _work_on_accelerators(decoded: _Decoded, trace: Trace) -> _Work:
    """Return the operations on the streams of GPUs and on the lines of TPUs."""
    slices = decoded.slices
    queue_of_row: dict[TraceThread, Queue] = {}
    stream_rows = set()
    for row in slices.rows:
        process, _ = row
        match = DEVICE.match(trace.processes.get(process, ""))
        if match is None:
            continue
        kind, index, suffix = match.groups()
        thread_name = trace.threads.get(row, "")
        queue_name = thread_name
        sparse_core = SPARSE_CORE.fullmatch(suffix)
        if sparse_core is not None:
            suffix, queue_name = "", sparse_core[1]
        device = f"{kind.lower()}:{index}{suffix}"
        stream = STREAM.match(thread_name)
        if stream is not None:
            queue_of_row[row] = (device, f"stream {stream[1]}")
            stream_rows.add(row)
        elif thread_name in TPU_LINES and kind != "GPU":
            queue_of_row[row] = (device, queue_name)
    is_on_stream = slices.on_threads(stream_rows)
    is_on_line = slices.on_threads(queue_of_row.keys() - stream_rows)
    is_container = slices.named(CONTAINER.fullmatch)
    # On a line, an operation that holds other ones only repeats them.
    positions_on_lines = np.flatnonzero(is_on_line & ~is_container)
    is_operation = is_on_stream.copy()
    is_operation[positions_on_lines] = _holds_no_other(slices.select(positions_on_lines))
    operations, arguments = decoded.select(is_operation)
    queues, queue_of = recoded(operations.rows, operations.row_of, queue_of_row.__getitem__)
    return _on_own_lanes(_Work(operations, queues, queue_of, arguments))


def _work_on_cpus(decoded: _Decoded, is_operation: np.ndarray) -> _Work:
    """Return the operations on CPU devices: those of the host that hold no other ones."""
    slices = decoded.slices
    is_container = slices.named(CONTAINER.fullmatch)
    positions = np.flatnonzero(is_operation & ~is_container)
    innermost = positions[_holds_no_other(slices.select(positions))]
    operations, arguments = decoded.select(innermost)
    ordinals, ordinal_of = arguments["device_ordinal"]
    # A queue for each pair of a thread and a device, in the order of their first operations. To be
    # numbered, such a pair stands for a thread.
    pair_numbers = operations.row_of.astype(np.int64) * len(ordinals) + ordinal_of
    pairs, pair_of = coded(pair_numbers.tolist())
    queue_of_pair: dict[TraceThread, Queue] = {}
    for position, pair in enumerate(pairs):
        # Before 2025 XLA did not say on which device.
        ordinal = ordinals[pair % len(ordinals)]
        device = "cpu" if ordinal is None else f"cpu:{ordinal}"
        queue_of_pair["pair", position] = (device, "compute")
    queues = tuple(numbered_queues(queue_of_pair).values())
    return _on_own_lanes(_Work(operations, queues, pair_of, arguments))


def _holds_no_other(slices: Slices) -> np.ndarray:
    """Return which slices hold no other slice of the same thread."""
    # Of each thread the earlier ones first, and of those that start together the longest one. Then
    # a slice that holds others holds the next one.
    order = np.lexsort((-slices.ends, slices.starts, slices.row_of))
    rows, starts, ends = slices.row_of[order], slices.starts[order], slices.ends[order]
    next_is_on_same_row = rows[1:] == rows[:-1]
    next_ends_within = ends[1:] <= ends[:-1]
    next_takes_time = starts[1:] < ends[1:]
    holds_next = next_is_on_same_row & next_ends_within & next_takes_time
    holds_no_other = np.ones(len(slices), bool)
    holds_no_other[order[:-1]] = ~holds_next
    return holds_no_other


def _on_own_lanes(work: _Work) -> _Work:
    """Return the operations with further queues for those that overlap on one queue.

    A queue runs one operation at a time.
    """
    queues = list(work.queues)
    queue_of = work.queue_of.copy()
    for queue_number, (device, queue_name) in enumerate(work.queues):
        positions = np.flatnonzero(queue_of == queue_number)
        starts, ends = work.slices.starts[positions], work.slices.ends[positions]
        latest_ends = np.maximum.accumulate(ends)
        if not np.any(starts[1:] < latest_ends[:-1]):
            continue
        # The first lane is the queue itself, and each further one becomes a new queue.
        free_lanes = Lanes()
        times = zip(starts.tolist(), ends.tolist(), strict=True)
        lanes = [free_lanes.take(work.slices.rows[0], start, end) for start, end in times]
        queue_of_lane = [queue_number]
        for lane in range(1, max(lanes) + 1):
            queue_of_lane.append(len(queues))
            queues.append((device, f"{queue_name} ({lane + 1})"))
        queue_of[positions] = np.array(queue_of_lane)[lanes]
    return work._replace(queues=tuple(queues), queue_of=queue_of)


class _Launches:
    """The times when the host launched operations, by the number of the call or of the run."""

    def __init__(self, host: _Decoded) -> None:
        self._time_of_call = _first_starts(host, "correlation_id")
        self._time_of_run = _first_starts(host, "run_id")

    def times(self, work: _Work) -> np.ndarray:
        """Return when each operation was launched, or UNKNOWN."""
        times_by_call = self._looked_up(work.arguments["correlation_id"], self._time_of_call)
        times_by_run = self._looked_up(work.arguments["run_id"], self._time_of_run)
        times = np.where(times_by_call == UNKNOWN, times_by_run, times_by_call)
        # Nothing runs before its launch: then a run's number has come again.
        return np.where(times <= work.slices.starts, times, UNKNOWN)

    def _looked_up(self, numbers: _Argument, time_of: Mapping[str, int]) -> np.ndarray:
        """Return the time for the number of each operation, or UNKNOWN."""
        distinct_numbers, number_of = numbers
        if not len(number_of):
            return np.zeros(0, np.int64)
        times = [time_of.get(str(number), UNKNOWN) for number in distinct_numbers]
        return np.array(times, np.int64)[number_of]


def _first_starts(host: _Decoded, argument: str) -> dict[str, int]:
    """Return when the first slice starts that has each value of an argument."""
    slices, arguments = host.select(host.arguments[argument].is_given)
    values, value_of = arguments[argument]
    first_start_of: dict[str, int] = {}
    for value, start in zip(value_of.tolist(), slices.starts.tolist(), strict=True):
        first_start_of.setdefault(str(values[value]), start)
    return first_start_of


def _spans(work: _Work, launches: _Launches) -> Spans:
    """Return the spans of operations on devices, linked to their launches."""
    slices = work.slices
    operators, operator_of = recoded(slices.names, slices.name_of, str)
    kind_of_operator = [KINDS.index(_kind(operator)) for operator in operators]
    kinds = np.array(kind_of_operator, np.int8)[operator_of]
    operations, operation_of = work.arguments["hlo_op"]
    exchanges = [EXCHANGE.fullmatch(str(operation)) is not None for operation in operations]
    kinds[np.array(exchanges, bool)[operation_of]] = KINDS.index("exchange")
    short_name_of = short_names(operators)
    names, name_of = recoded(operators, operator_of, lambda name: _readable(short_name_of[name]))
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


def _kind(name: str) -> SpanKind:
    """Return the kind of a kernel by its name."""
    if is_communication(name) or EXCHANGE.fullmatch(name):
        return "exchange"
    if COPY.fullmatch(name):
        return "copy"
    return "compute"


def _readable(name: str) -> str:
    """Return an operation's name without the number that tells it from others of its kind."""
    return re.sub(r"(?:\.\d+)+$", "", name.removeprefix("%"))


def _steps(host: _Decoded) -> Iterator[Window]:
    """Yield the steps that `profile` marks, and those of the program's StepTraceAnnotation."""
    for mark in host.slices.select(host.slices.named(STEP.fullmatch)):
        yield Window(mark.name, mark.start, mark.end)
    annotations, arguments = host.select(host.arguments["step_num"].is_given)
    numbers, number_of = arguments["step_num"]
    for annotation, number in zip(annotations, number_of.tolist(), strict=True):
        yield Window(f"{annotation.name}#{numbers[number]}", annotation.start, annotation.end)
