"""Measure what reading a long trace and computing its figures take: processor time of one core, and
memory.

    python -m benchmarks.trace_reading --events 1000000
    python -m benchmarks.trace_reading TRACE.json.gz …

Four synthetic traces of so many events are written: of PyTorch's profiler on a CPU and on a GPU
(complete events with arguments, and flows), of MXNet's (begins and ends), and of JAX's on two CPU
devices (thread by thread). They, and traces that are named, are read in fresh processes, as
`parallel-core trace` does.
"""

import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import BinaryIO

import click

from backends.host import core_numbers, on_cores
from parallel_core.measurement.timing import without_garbage_collection
from parallel_core.trace_analysis.figures import timeline_figures
from parallel_core.trace_analysis.trace_files import read_timeline

BEGINNINGS = {
    "torch": '{"schemaVersion": 1, "traceEvents": [\n',
    "gpu": '{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": '
    "[\n",
    "mxnet": '{"traceEvents": [\n'
    '{"ph": "M", "args": {"name": "cpu/1"}, "pid": 1, "name": "process_name"},\n'
    '{"ph": "M", "args": {"name": "cpu pinned/"}, "pid": 2, "name": "process_name"},\n',
    "jax": '{"displayTimeUnit": "ns", "metadata": {"highres-ticks": true}, "traceEvents": [\n'
    '{"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},\n'
    '{"ph": "M", "pid": 701, "tid": 1, "name": "thread_name", "args": {"name": "python"}},\n'
    '{"ph": "M", "pid": 701, "tid": 2, "name": "thread_name", "args": {"name": "tf_XLA/2"}},\n'
    '{"ph": "M", "pid": 701, "tid": 3, "name": "thread_name", "args": {"name": "tf_XLA/3"}},\n',
}
END = '\n], "displayTimeUnit": "ms"}\n'
EPOCH = 1_795_279_713_356_264
"""Microseconds from 1970 to a day on which traces were recorded."""
THREAD = 10_051_307_376_349_735_870
COMPLETE = """{{
    "ph": "X", "cat": "cpu_op", "name": "aten::operator_{kind}", "pid": 869, "tid": {thread},
    "ts": {start}.047, "dur": 5.125,
    "args": {{ "External id": {number}, "Record function id": 0, "Ev Idx": {number} }}
  }}"""
LAUNCHED = """{{
    "ph": "X", "cat": "cpu_op", "name": "aten::operator_{kind}", "pid": 869, "tid": 869,
    "ts": {start}.047, "dur": 24.125,
    "args": {{ "External id": {number}, "Record function id": 0, "Ev Idx": {number} }}
  }},
{{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 869, "tid": 869,
    "ts": {start}.914, "dur": 4.370,
    "args": {{ "External id": {number}, "cbid": 211, "correlation": {number} }}
  }},
{{
    "ph": "s", "id": {number}, "pid": 869, "tid": 869, "ts": {start}.914,
    "cat": "ac2g", "name": "ac2g"
  }},
{{
    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {stream},
    "ts": {later}.259, "dur": {duration}.072,
    "args": {{
      "External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": {stream},
      "correlation": {number},
      "registers per thread": 32, "shared memory": 0, "grid": [512, 1, 1], "block": [128, 1, 1]
    }}
  }},
{{
    "ph": "f", "id": {number}, "pid": 0, "tid": {stream}, "ts": {later}.259,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }}"""
EVENTS_OF_LAUNCH = 5
BEGIN_OR_END = """{{
        "name": "operator_{kind}",
        "cat": "operator",
        "ph": "{phase}",
        "ts": {time},
        "pid": {device},
        "tid": {thread}
    }}"""

XLA_SOURCE = "external/xla/xla"
STEP_OF_JAX = (
    '{{"ph": "X", "pid": 701, "tid": 1, "ts": {start}.5, "dur": {duration}.25, "name": "train", '
    '"args": {{"step_num": "{number}"}}}}'
)
CALL_OF_JAX = (
    '{{"ph": "X", "pid": 701, "tid": 1, "ts": {start}.75, "dur": 20.25, '
    '"name": "TfrtCpuExecutable::ExecuteHelper", "args": {{"_src": '
    f'"{XLA_SOURCE}/pjrt/cpu/cpu_client.cc", '
    '"run_id": "{run}"}}}}'
)
OPERATION_OF_JAX = (
    '{{"ph": "X", "pid": 701, "tid": {thread}, "ts": {start}.753, "dur": 5.404, '
    '"name": "{name}", "args": {{"_src": '
    f'"{XLA_SOURCE}/backends/cpu/runtime/thunk_executor.cc", '
    '"device_ordinal": "{device}", "hlo_module": "jit_train_step", "hlo_op": "{name}", '
    '"run_id": "{run}"}}}}'
)
WRITTEN = ("torch.json", "mxnet.json", "gpu.json.gz", "jax.json.gz")
OPERATIONS_OF_STEP = 1000
"""On each of JAX's devices."""


def write_events(stream: BinaryIO, count: int, form: str) -> None:
    """Write a trace of `count` events in the form of `torch`, `gpu`, `mxnet` or `jax`."""
    forms = {"torch": torch_events, "gpu": gpu_events, "mxnet": mxnet_events, "jax": jax_events}
    make = forms[form]
    stream.write(BEGINNINGS[form].encode())
    for number, event in enumerate(make(count)):
        stream.write((",\n" if number else "").encode() + event.encode())
    stream.write(END.encode())


def torch_events(count: int) -> Iterator[str]:
    """Make complete events that follow each other on three threads."""
    for number in range(count):
        start = EPOCH + 7 * number
        yield COMPLETE.format(kind=number % 50, thread=869 + number % 3, start=start, number=number)


def gpu_events(count: int) -> Iterator[str]:
    """Make operators, the calls in them, kernels and flows; every twentieth kernel is NCCL's, on
    another stream.
    """
    nccl = {"duration": 200, "stream": 20, "kernel": "ncclDevKernel_AllReduce_Sum_f32"}
    for number in range(1, count // EVENTS_OF_LAUNCH + 1):
        computes = {
            "duration": 20,
            "stream": 7,
            "kernel": f"void kernel_{number % 50}<float, 4>(int)",
        }
        start = EPOCH + 30 * number
        what = computes if number % 20 else nccl
        yield LAUNCHED.format(
            kind=number % 50, number=number, start=start, later=start + 12, **what
        )


def mxnet_events(count: int) -> Iterator[str]:
    """Make begins and their ends on two devices."""
    for number in range(count):
        operator, time_ = number // 2, EPOCH + 7 * number
        of_operator = {"kind": operator % 50, "device": 1 + operator % 2, "thread": THREAD}
        yield BEGIN_OR_END.format(phase="BE"[number % 2], time=time_, **of_operator)


def jax_events(count: int) -> Iterator[str]:
    """Make steps and calls of Python's thread, then the operations of two devices, a thread each.

    In each step a device exchanges once.
    """
    devices = range(2)
    steps = range(count // (len(devices) * OPERATIONS_OF_STEP + len(devices) + 1))
    length = 7 * OPERATIONS_OF_STEP
    for step in steps:
        begin = length * step
        yield STEP_OF_JAX.format(start=begin, duration=length - 1, number=step)
        for device in devices:
            yield CALL_OF_JAX.format(start=begin + 25 * device, run=2 * step + device - 299_261_892)
    for device in devices:
        for step in steps:
            run = 2 * step + device - 299_261_892
            begin = length * step + 100
            for number in range(OPERATIONS_OF_STEP):
                name = f"fusion.{number}" if number else "all-reduce"
                yield OPERATION_OF_JAX.format(
                    thread=2 + device, start=begin + 6 * number, name=name, device=device, run=run
                )


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--events",
    default=1_000_000,
    show_default=True,
    help="In each synthetic trace; 0: none are written.",
)
@click.option("--rounds", default=3, show_default=True)
@click.option("--read", type=click.Path(path_type=Path), help="Read this file, in this process.")
def main(files: Sequence[Path], events: int, rounds: int, read: Path | None) -> None:
    """Print seconds of one core and peak memory, the median of some rounds."""
    if read is not None:
        print(json.dumps(cost(read)))
        return
    with tempfile.TemporaryDirectory() as folder:
        made = [Path(folder) / name for name in WRITTEN] if events else []
        for path in made:
            with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as stream:
                write_events(stream, events, path.name.partition(".")[0])
        for path in (*made, *files):
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
            show(path, rounds)


def show(path: Path, rounds: int) -> None:
    """Read a file in fresh processes on one core, and print what it cost."""
    command = [sys.executable, "-m", "benchmarks.trace_reading", "--read", str(path)]
    with on_cores({core_numbers()[0]}):
        printed = [
            subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
            for _ in range(rounds)
        ]
    costs = [json.loads(one) for one in printed]
    read, figures, peak = (median(column) for column in zip(*costs, strict=True))
    both = [read + figures for read, figures, _ in costs]
    spread = f"{min(both):.2f} to {max(both):.2f} s; read {read:.2f}, figures {figures:.2f}"
    print(f"  {median(both):.2f} s ({spread}), {peak:.0f} MiB", flush=True)


def cost(path: Path) -> tuple[float, float, float]:
    """Read a trace and compute its figures, in this process.

    Return seconds of one core for reading and for the figures, without imports, and the largest
    memory in MiB.
    """
    start = time.process_time()
    with without_garbage_collection():
        timeline = read_timeline(path)
        read = time.process_time()
        timeline_figures(timeline)
        computed = time.process_time()
    return read - start, computed - read, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
