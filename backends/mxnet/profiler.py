"""MXNet's own profiler. Read it beside `torch_profiler.py`: the same functions, in the same order.

MXNet's engine writes down each operator that a worker runs, with the device's number and the thread, but not which call
it comes from. Of Python's calls only the marks that the verbs leave are in the trace.
"""

import atexit
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from backends.arrays import tree_leaves
from backends.devices import Device
from backends.errors import BackendError
from backends.host import core_numbers
from backends.mxnet.launch_links import link
from backends.profiling.chrome_trace.slices import Slice, Trace
from backends.profiling.marks import Mark, marking_verbs
from backends.profiling.threads_of_trace import (
    assemble,
    host_spans,
    numbered_queues,
    outermost,
    python_queues,
    row_of,
    verbs_called,
    windows,
)
from backends.profiling.timeline import HOST_DEVICE, Kind, Span, Timeline
from backends.protocol import Array, Backend
from backends.variants import COPY_ON_COMPUTE_QUEUE

__all__ = ["check", "is_from", "profile", "refuse_rowless", "timeline_of"]

OPERATORS, MARKS = "operator", "event"
HOUSEKEEPING = {"DeleteVariable", "ResourceParallelRandomSetSeed"}
"""The engine's own work of some microseconds, which nobody asked for."""
NAMES = {
    "Convolution": "conv2d",
    "Flatten": "flatten",
    "ImperativeBulk": "bulk of operators",
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
COPIES = re.compile(r"_slice_assign|_copyto|Copy[CG]PU2[CG]PU")
OF_WAITS = {"WaitForVar", "parallel_core"}
"""What cpu(0)'s worker does for those who wait: theirs, and our barriers."""
UNLINKED = (
    "MXNet's profiler does not say which call an operator comes from; they are matched by name and order, which cannot "
    "be done for all calls on {}: one call may run several operators"
)
SUMS_UNSEEN = (
    "MXNet sums short arrays by operators like any other: they count as computation, and only copying the sums back "
    "as communication"
)
END = '"displayTimeUnit": "ms"\n}'


def check(backend: Backend) -> None:
    """Raise BackendError where MXNet's profiler has no row for one of the devices: it would abort the process."""
    import mxnet as mx

    refuse_rowless(backend.devices, mx.context.num_gpus())


@contextmanager
def profile(backend: Backend, path: Path) -> Iterator[Mark]:
    """Run MXNet's profiler, which writes its trace to `path` at the end; yields what makes marks."""
    import mxnet as mx

    @contextmanager
    def mark(text: str) -> Iterator[None]:
        event = mx.profiler.Event(text)
        event.start()
        try:
            yield
        finally:
            event.stop()

    written = _configure(mx)
    device_of = partial(_device_of, mx.np.ndarray, COPY_ON_COMPUTE_QUEUE.name in backend.variants)
    mx.profiler.set_state("run")
    try:
        with marking_verbs(backend, mark, device_of):
            yield mark
    finally:
        mx.profiler.set_state("stop")
        mx.profiler.dump(True)
        text = _last_document(written.read_text(encoding="utf-8"))
        path.write_text(text if mx.context.num_gpus() else _with_cpu_rows(text), encoding="utf-8")


def is_from(trace: Trace) -> bool:
    """Tell whether MXNet's profiler wrote a trace."""
    return any(_device_in(name) for name in trace.processes.values())


def timeline_of(trace: Trace, source: str = "mxnet") -> Timeline:
    """Read what MXNet's profiler wrote. Operators of one device that another thread ran get a queue of their own."""
    rows = _devices(trace.processes)
    # Some operators run others: a convolution may reorder its images first.
    work = outermost(
        one
        for one in trace.slices
        if one.category == OPERATORS and one.process in rows and one.name not in HOUSEKEEPING
    )
    marks = [one for one in trace.slices if one.category == MARKS]
    waits = [one for one in work if rows[one.process] == "cpu:0" and one.name in OF_WAITS]
    operators = [one for one in work if rows[one.process] != "cpu:0" or one.name not in OF_WAITS]
    waiting = numbered_queues({row_of(one): (HOST_DEVICE, "waits") for one in waits})
    queues = numbered_queues({row_of(one): (rows[one.process], "compute") for one in operators})
    cases = windows(marks)
    calls = verbs_called(marks)
    host = host_spans(calls, python_queues(calls))
    spans, unlinked = link([_span(one, *queues[row_of(one)]) for one in operators], host, cases)
    host += [Span("wait", "host", *waiting[row_of(one)], one.start, one.end, operator=one.name) for one in waits]
    notes = [*trace.problems]
    if any(call.name == "allreduce" for call in host) and not any(span.kind == "exchange" for span in spans):
        notes.append(SUMS_UNSEEN)
    if unlinked:
        notes.append(UNLINKED.format(", ".join(unlinked)))
    return assemble(source, [*host, *spans], cases, notes)


def refuse_rowless(devices: Sequence[Device], gpus: int) -> None:
    """Raise BackendError where a device's number is beyond what MXNet's profiler holds."""
    # It has a row for each core, for each GPU, and two more; a CPU device's number is its row, whatever the label says.
    cores = len(core_numbers())
    last = cores + 1 if gpus == 0 else cores - 1
    beyond = [device for device in devices if device.kind == "cpu" and device.index > last]
    if beyond:
        raise BackendError(
            f"mxnet's profiler would abort at {beyond[0]}: with {cores} {'core' if cores == 1 else 'cores'} it knows "
            f"devices up to cpu:{last}, so profile with --devices {last} or fewer"
        )


def _configure(mx: Any) -> Path:
    # A second configuration in one process is an error, so the file stays the same, and every dump is added to it.
    global _written
    if _written is None:
        folder = tempfile.mkdtemp(prefix="parallel-core-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _written = Path(folder) / "profile.json"
        mx.profiler.set_config(
            filename=str(_written),
            profile_imperative=True,
            profile_symbolic=True,
            profile_api=False,
            profile_memory=False,
            aggregate_stats=False,
        )
    return _written


_written: Path | None = None


def _last_document(text: str) -> str:
    # Only the first dump names the rows; those after it begin with a comma.
    first, *others = text.rstrip().removesuffix(END).split(END)
    if not others:
        return first + END
    begin = first.find('"ph": "B"')
    rows = first[:begin].rpartition("{")[0] if begin >= 0 else first.rpartition("]")[0].rstrip() + ",\n"
    return rows + others[-1].lstrip(", \n") + END


def _with_cpu_rows(text: str) -> str:
    # MXNet's CUDA build keeps 32 rows for GPUs behind those of the cores, whatever GPUs there are; without any, all are
    # of the CPU devices with their numbers.
    return re.sub(r'"(?:gpu/\d+|cpu pinned/|cpu shared/)"(\s*},\s*"pid": )(\d+)', r'"cpu/\2"\1\2', text)


def _device_of(array: Any, copies_by_source: bool, verb: str, *args: Array, **named: Any) -> Device | None:
    if verb == "copy_to" and not copies_by_source:
        return named.get("device") or args[1]
    if verb in ("copy_to", "launch"):
        for leaf in tree_leaves((args, tuple(named.values()))):
            if isinstance(leaf, array):
                return Device(leaf.ctx.device_type, leaf.ctx.device_id)
    return None


def _device_in(label: str) -> str | None:
    found = re.fullmatch(r"([cg]pu)/(\d+)", label)
    return f"{found[1]}:{found[2]}" if found else None


def _devices(labels: Mapping[int | str, str]) -> dict[int | str, str]:
    """Name the device of each row."""
    found = {row: device for row, label in labels.items() if (device := _device_in(label))}
    gpus = any(device.startswith("gpu") for device in found.values())
    for row, label in labels.items():
        # Without GPUs nothing is page-locked, and a row so labelled is that of the CPU device with its number.
        if label in ("cpu pinned/", "cpu shared/"):
            found[row] = "cpu:0" if gpus else f"cpu:{row}"
    return found


def _span(one: Slice, device: str, queue: str) -> Span:
    return Span(_readable(one.name), _kind(one.name), device, queue, one.start, one.end, operator=one.name)


@cache
def _kind(operator: str) -> Kind:
    if operator == "parallel_core":
        return "exchange"
    return "copy" if COPIES.fullmatch(operator) else "compute"


@cache
def _readable(operator: str) -> str:
    if COPIES.fullmatch(operator):
        return "copy"
    plain = re.sub(r"_(npi|npx|np)_", "_", operator).strip("_")
    forward = plain.removeprefix("backward_")
    return NAMES.get(forward, forward) + ("" if forward == plain else " backward")
